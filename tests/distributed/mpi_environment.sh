# shellcheck shell=sh
# SPDX-License-Identifier: MIT
# More ranks than processors, as root, without a network, whose search takes longest; ranks that wait let the others compute, and those
# that fail are not waited for.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1 OMPI_MCA_plm=isolated OMPI_MCA_odls_base_sigkill_timeout=0

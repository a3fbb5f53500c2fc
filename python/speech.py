"""Speech as the scripted Gemini understands it: what crates/demo/src/scripted_gemini/live/tones.rs describes, in Python."""

import math
import struct


def tones(text, rate=16000):
    samples = []
    for byte in bytes([2]) + text.encode() + bytes([3]):
        low, high = 450 + 75 * (byte & 15), 1800 + 75 * (byte >> 4)
        for at in range(rate * 40 // 1000):
            turn = 2 * math.pi * at / rate
            samples.append(int(7000 * (math.sin(low * turn) + math.sin(high * turn))))
        samples += [0] * (rate * 20 // 1000)
    return struct.pack(f"<{len(samples)}h", *samples)


def silence(milliseconds):
    return bytes(32 * milliseconds)

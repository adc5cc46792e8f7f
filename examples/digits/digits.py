"""Small pictures of digits that we draw ourselves, and a classifier for them, in plain Python.

A framework would replace this module and nothing else: the other programs of this folder show where the data
comes from and where the model goes.
"""

import json
import random

SIZE = 8
LABELS = range(10)
# Segments of a seven-segment display: a is the top one, then clockwise, g is in the middle.
_SEGMENTS = "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcdfg".split()
_PLACES = {
    "a": [(0, x) for x in range(1, 6)],
    "b": [(y, 6) for y in range(4)],
    "c": [(y, 6) for y in range(4, 8)],
    "d": [(7, x) for x in range(1, 6)],
    "e": [(y, 0) for y in range(4, 8)],
    "f": [(y, 0) for y in range(4)],
    "g": [(3, x) for x in range(1, 6)],
}


def draw(label, dice):
    """Pixels of a digit, from 0 to 255, with noise."""
    pixels = [dice.randrange(90) for _ in range(SIZE * SIZE)]
    for segment in _SEGMENTS[label]:
        for y, x in _PLACES[segment]:
            pixels[y * SIZE + x] = 255 - dice.randrange(90)
    return bytes(pixels)


def samples(count, seed=1):
    """Labels and pixels."""
    dice = random.Random(seed)
    for _ in range(count):
        label = dice.choice(LABELS)
        yield label, draw(label, dice)


def encode_pgm(pixels):
    return b"P5 %d %d 255\n" % (SIZE, SIZE) + pixels


def decode_pgm(content):
    header, _, pixels = content.partition(b"\n")
    if header != b"P5 %d %d 255" % (SIZE, SIZE) or len(pixels) != SIZE * SIZE:
        raise ValueError("this is not a PGM picture of %d x %d pixels" % (SIZE, SIZE))
    return pixels


class Classifier:
    """A perceptron: for each label a weight for each pixel."""

    def __init__(self, weights=None):
        self.weights = weights or [[0.0] * (SIZE * SIZE + 1) for _ in LABELS]

    def predict(self, pixels):
        inputs = [value / 255 for value in pixels] + [1.0]
        scores = [sum(map(float.__mul__, weights, inputs)) for weights in self.weights]
        return scores.index(max(scores))

    def learn(self, label, pixels):
        """Learn from one picture; returns whether it was recognised before."""
        guess = self.predict(pixels)
        if guess != label:
            for i, value in enumerate([value / 255 for value in pixels] + [1.0]):
                self.weights[label][i] += value
                self.weights[guess][i] -= value
        return guess == label

    def dumps(self):
        return json.dumps(self.weights)

    @classmethod
    def loads(cls, text):
        return cls(json.loads(text))

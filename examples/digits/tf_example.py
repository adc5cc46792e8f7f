"""``tf.train.Example`` without TensorFlow: a protocol buffer with named lists of bytes or of numbers."""


def encode(features):
    """Bytes of an Example, from ``{"image_raw": b"...", "label": 7}``."""
    entries = b""
    for name, value in sorted(features.items()):
        if isinstance(value, bytes):
            feature = _field(1, _field(1, value))  # bytes_list
        else:
            feature = _field(3, _field(1, _varint(value)))  # int64_list, packed
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def decode(data):
    """The first value of each feature."""
    features = {}
    for _, entry in _fields(next(_fields(data))[1]):
        parts = dict(_fields(entry))
        kind, values = next(_fields(parts[2]))
        first = next(_fields(values))[1]
        features[parts[1].decode()] = first if kind == 1 else _read_varint(first, 0)[0]
    return features


def _field(number, content):
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data):
    at = 0
    while at < len(data):
        number = data[at] >> 3
        length, at = _read_varint(data, at + 1)
        yield number, data[at : at + length]
        at += length


def _read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at

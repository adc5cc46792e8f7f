"""Shard formats: tar, TFRecord and Hadoop's SequenceFile. Each is a writer and a reader of one shard."""

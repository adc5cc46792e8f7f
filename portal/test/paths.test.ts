import assert from "node:assert/strict";
import { test } from "node:test";
import { baseName, decodePath, encodePath, endingOf, join, nameProblem, parentOf, resolve } from "../src/files/paths.ts";

test("a path survives the address", () => {
  for (const path of ["/", "/user/alice", "/a b/100%/c#d?e", "/<img src=x>/ü", "/a%2Fb"]) {
    assert.equal(decodePath(encodePath(path)), path);
  }
  assert.equal(encodePath("/a/b c"), "/a/b%20c");
});

test("an address that is no escape is taken as it is", () => {
  assert.equal(decodePath("/50%/x"), "/50%/x");
});

test("parts of a path", () => {
  assert.equal(parentOf("/a/b"), "/a");
  assert.equal(parentOf("/a"), "/");
  assert.equal(baseName("/a/b"), "b");
  assert.equal(baseName("/"), "");
  assert.equal(join("/", "a"), "/a");
  assert.equal(join("/a", "b"), "/a/b");
  assert.equal(endingOf("x.tar.GZ"), "gz");
  assert.equal(endingOf(".bashrc"), "");
});

test("typed paths are relative to the folder", () => {
  assert.equal(resolve("new", "/a/b"), "/a/b/new");
  assert.equal(resolve("../c/", "/a/b"), "/a/c");
  assert.equal(resolve("/x//y/./z", "/a"), "/x/y/z");
  assert.equal(resolve("../../..", "/a"), "/");
});

test("a name is one name", () => {
  assert.equal(nameProblem("data"), "");
  for (const name of ["", "  ", "a/b", ".", ".."]) assert.notEqual(nameProblem(name), "");
});

import { render } from "preact";
import { ApiError } from "../../src/api_error.ts";
import { usePolled, type Polled } from "../../src/live.ts";
import { equal, test, until } from "./runner.ts";

type Load = (signal: AbortSignal) => Promise<string>;

/** A page that shows what is polled, as "VALUE ERROR". */
function polledPage(load: Load, intervalMs: number) {
  const host = document.createElement("div");
  document.body.replaceChildren(host);
  const last: { polled?: Polled<string> } = {};
  function Page({ name }: { name: string | null }) {
    const polled = usePolled(name, load, intervalMs);
    last.polled = polled;
    return <p>{`${polled.value ?? "-"} ${polled.error?.message ?? "-"}`}</p>;
  }
  const show = (name: string | null) => render(<Page name={name} />, host);
  return { show, last, text: () => host.textContent ?? "", end: () => render(null, host) };
}

const problem = (status: number) => new ApiError(`status ${status}`, status, "", "");

test("data is loaded again and again, and no more after the page has gone", async () => {
  let count = 0;
  const page = polledPage(() => Promise.resolve(`load ${(count += 1)}`), 1);
  page.show("jobs");
  await until(() => page.text() === "load 4 -" || count > 4);
  page.end();
  const atEnd = count;
  await new Promise((resolve) => setTimeout(resolve, 50));
  equal(count <= atEnd + 1, true);
});

test("without a key nothing is loaded", async () => {
  let count = 0;
  const page = polledPage(() => Promise.resolve(`load ${(count += 1)}`), 1);
  page.show(null);
  await new Promise((resolve) => setTimeout(resolve, 30));
  equal([count, page.text()], [0, "- -"]);
  page.show("jobs");
  await until(() => count > 0);
  page.end();
});

test("what was shown stays while the cluster does not answer, and goes with another refusal", async () => {
  const answers: (string | number)[] = ["first", 503, 0, 429, "second", 404];
  const seen: string[] = [];
  const page = polledPage(async () => {
    seen.push(page.text());
    const answer = answers.shift() ?? "third";
    if (typeof answer === "number") throw problem(answer);
    return answer;
  }, 1);
  page.show("jobs");
  // Requests after failures wait longer.
  const loop = setInterval(() => page.last.polled?.reload(), 30);
  await until(() => seen.includes("third -"));
  clearInterval(loop);
  page.end();
  equal([...new Set(seen)], ["- -", "first -", "second -", "- status 404", "third -"]);
});

test("of two keys the answer of the later one is shown, whichever comes first", async () => {
  const waiting = new Map<string, (value: string) => void>();
  let key = "one";
  const page = polledPage(() => new Promise((resolve) => waiting.set(key, resolve)), 3_600_000);
  page.show("one");
  await until(() => waiting.has("one"));
  key = "two";
  page.show("two");
  await until(() => waiting.has("two"));
  waiting.get("two")?.("of two");
  waiting.get("one")?.("of one");
  await until(() => page.text() === "of two -");
  await new Promise((resolve) => setTimeout(resolve, 20));
  equal(page.text(), "of two -");
  page.end();
});

test("a request of a page that has gone is cancelled", async () => {
  const signals: AbortSignal[] = [];
  const page = polledPage((signal) => {
    signals.push(signal);
    return new Promise(() => undefined);
  }, 1);
  page.show("jobs");
  await until(() => signals.length === 1);
  page.end();
  await until(() => signals[0]?.aborted === true);
});

test("nothing is loaded while the page is hidden", async () => {
  let count = 0;
  let isHidden = false;
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  const page = polledPage(() => Promise.resolve(`load ${(count += 1)}`), 1);
  page.show("jobs");
  await until(() => count > 2);
  isHidden = true;
  await new Promise((resolve) => setTimeout(resolve, 50));
  const atRest = count;
  await new Promise((resolve) => setTimeout(resolve, 50));
  equal(count, atRest);
  isHidden = false;
  document.dispatchEvent(new Event("visibilitychange"));
  await until(() => count > atRest);
  page.end();
  Reflect.deleteProperty(document, "hidden");
});

import { describe, expect, it } from "vitest";
import { ago, plural, problemCount, showAge, showBytes, showSeconds } from "../../src/ui/words";

const GIB = 2 ** 30;

describe("figures in words", () => {
  it("counts", () => {
    expect([0, 1, 2].map((count) => plural(count, "Walk"))).toEqual(["0 Walks", "1 Walk", "2 Walks"]);
    expect(problemCount(2, 1)).toBe("2 errors, 1 warning");
    expect(problemCount(0, 2)).toBe("2 warnings");
    expect(problemCount(0, 0)).toBe("");
  });

  it("tells sizes in three figures", () => {
    expect([0, 1023, 1024, 1.5 * GIB, 100 * GIB, -2048].map(showBytes)).toEqual([
      "0 B",
      "1023 B",
      "1.0 KiB",
      "1.5 GiB",
      "100 GiB",
      "−2.0 KiB",
    ]);
  });

  it("tells how long something took, and for how long it is so", () => {
    const took = [0, 0.0004, 0.012, 1.234, 12.34, 90].map(showSeconds);
    expect(took).toEqual(["0 ms", "< 1 ms", "12 ms", "1.23 s", "12.3 s", "1 min 30 s"]);
    expect([5, 300, 7200, 200_000].map(showAge)).toEqual(["5 s", "5 min", "2 h", "2 days"]);
  });

  it("tells when something was", () => {
    expect(ago(1000, 1030)).toBe("just now");
    expect(ago(0, 120)).toBe("2 minutes ago");
    expect(ago(0, 86_400)).toBe("yesterday");
    expect(ago(0, 5 * 3600)).toBe("5 hours ago");
  });
});

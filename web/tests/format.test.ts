import { beforeEach, describe, expect, it } from "vitest";
import { ageOf, bytes, duration, NONE, number, percent, shortId, shortModel, watts } from "../src/parts/format";
import { language } from "../src/state/preferences";

beforeEach(() => {
  language.value = "en";
});

describe("numbers as text", () => {
  it.each([number, percent, bytes, watts, duration])("what is not known is a dash, never 0", (show) => {
    expect(show(null)).toBe(NONE);
    expect(show(undefined)).toBe(NONE);
    expect(show(0)).toMatch(/^0/);
  });

  it("shows more than 100 % as such, and a little as more than nothing", () => {
    expect(percent(1.5)).toBe("150 %");
    expect(percent(0.004)).toBe("0.4 %");
    expect(percent(0)).toBe("0 %");
  });

  it("scales bytes by 1024", () => {
    expect(bytes(1024 ** 3 * 9.5)).toBe("9.5 GiB");
    expect(bytes(1024 ** 3 * 80)).toBe("80 GiB");
    expect(bytes(-2048)).toBe("−2 KiB");
  });

  it("has two units of time at most, by language", () => {
    expect(duration(59)).toBe("59 s");
    expect(duration(3600 * 26)).toBe("1 d 2 h");
    language.value = "zh";
    expect(duration(3600 * 26)).toBe("1 天 2 小时");
  });

  it("separates thousands by language", () => {
    expect(number(1234567)).toBe("1,234,567");
  });

  it("knows no age of a wrong moment", () => {
    expect(ageOf("not a date", 0)).toBeNull();
    expect(ageOf("1970-01-01T00:00:10Z", 15_000)).toBe(5);
  });

  it("shows a UUID as short as the commands do", () => {
    expect(shortId("GPU-4d8a821e-d5fc-4bd3-9565-8b8849f3380e")).toBe("GPU-4d8a821e…");
    expect(shortModel("NVIDIA A100-SXM4-80GB")).toBe("A100-SXM4-80GB");
  });
});

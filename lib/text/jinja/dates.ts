/**
 * Python's `datetime.strftime` on Linux in the C locale (English), for the function strftime_now of transformers, which
 * formats the local time without a time zone.
 *
 * @module
 */

import { spendText, TemplateError, Unsupported } from "./limits.ts";

/** A local time. Months and days count from 1. */
export interface Moment {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
  readonly microsecond: number;
}

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/** Converts a date to local time. */
export function momentOf(date: Date): Moment {
  return {
    year: date.getFullYear(),
    month: date.getMonth() + 1,
    day: date.getDate(),
    hour: date.getHours(),
    minute: date.getMinutes(),
    second: date.getSeconds(),
    microsecond: date.getMilliseconds() * 1000,
  };
}

/** The number of days since 1970-01-01, in the proleptic Gregorian calendar. */
function dayNumber(year: number, month: number, day: number): number {
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  return Math.floor(date.getTime() / 86_400_000);
}

/** Monday is 1, Sunday 7. */
function isoWeekday(number: number): number {
  return (((number + 3) % 7) + 7) % 7 + 1;
}

/** The year and week of ISO 8601. */
function isoWeek(number: number): { year: number; week: number } {
  const thursday = number + 4 - isoWeekday(number);
  const date = new Date(thursday * 86_400_000);
  const year = date.getUTCFullYear();
  return { year, week: Math.floor((thursday - dayNumber(year, 1, 1)) / 7) + 1 };
}

/** The value of a directive: a string, or a number with its default width and padding. */
type Field = string | readonly [number, number, "0" | " "];

/** Directives that stand for other formats. */
const COMPOSED: Readonly<Record<string, string>> = {
  c: "%a %b %e %H:%M:%S %Y",
  D: "%m/%d/%y",
  F: "%Y-%m-%d",
  r: "%I:%M:%S %p",
  R: "%H:%M",
  T: "%H:%M:%S",
  x: "%m/%d/%y",
  X: "%H:%M:%S",
  h: "%b",
};

function field(letter: string, moment: Moment): Field | undefined {
  const { year, month, day, hour, minute, second, microsecond } = moment;
  const number = dayNumber(year, month, day);
  const weekday = isoWeekday(number) % 7;
  const yearDay = number - dayNumber(year, 1, 1);
  switch (letter) {
    case "a":
      return DAYS[weekday].slice(0, 3);
    case "A":
      return DAYS[weekday];
    case "b":
      return MONTHS[month - 1].slice(0, 3);
    case "B":
      return MONTHS[month - 1];
    case "C":
      return [Math.floor(year / 100), 2, "0"];
    case "d":
      return [day, 2, "0"];
    case "e":
      return [day, 2, " "];
    case "f":
      return String(microsecond).padStart(6, "0");
    case "g":
      return [isoWeek(number).year % 100, 2, "0"];
    case "G":
      return [isoWeek(number).year, 4, "0"];
    case "H":
      return [hour, 2, "0"];
    case "I":
      return [hour % 12 || 12, 2, "0"];
    case "j":
      return [yearDay + 1, 3, "0"];
    case "k":
      return [hour, 2, " "];
    case "l":
      return [hour % 12 || 12, 2, " "];
    case "m":
      return [month, 2, "0"];
    case "M":
      return [minute, 2, "0"];
    case "n":
      return "\n";
    case "p":
      return hour < 12 ? "AM" : "PM";
    case "P":
      return hour < 12 ? "am" : "pm";
    case "S":
      return [second, 2, "0"];
    case "t":
      return "\t";
    case "u":
      return [weekday || 7, 1, "0"];
    case "U":
      return [Math.floor((yearDay + 7 - weekday) / 7), 2, "0"];
    case "V":
      return [isoWeek(number).week, 2, "0"];
    case "w":
      return [weekday, 1, "0"];
    case "W":
      return [Math.floor((yearDay + 7 - (weekday + 6) % 7) / 7), 2, "0"];
    case "y":
      return [year % 100, 2, "0"];
    case "Y":
      return [year, 4, "0"];
    case "z":
    case "Z":
      return "";
    case "%":
      return "%";
  }
}

/** The limit for a format; each character may expand to twenty. */
const MAX_FORMAT = 10_000;

/** A directive, with or without one of glibc's flags: %-d, %_d, %0e, %^a. */
const DIRECTIVE = /%([-_0^]?)(.)?/gsu;

/**
 * `moment.strftime(format)`.
 *
 * @throws {Unsupported} the format contains an unsupported directive
 */
export function strftime(moment: Moment, format: string): string {
  if (format.length > MAX_FORMAT) {
    throw new TemplateError(`the format of a date has more than ${MAX_FORMAT} characters`);
  }
  const text = format.replace(DIRECTIVE, (directive, flag: string, letter: string | undefined) => {
    if (letter === undefined) throw new Unsupported(`strftime's format ${directive}`);
    if (Object.hasOwn(COMPOSED, letter) && flag === "") return strftime(moment, COMPOSED[letter]);
    const found = field(letter, moment);
    if (typeof found === "string" && flag === "") return found;
    if (typeof found === "string" && flag === "^" && "aAbBpP".includes(letter)) return found.toUpperCase();
    if (typeof found === "object" && flag !== "^") {
      const [number, width, fill] = found;
      if (flag === "-") return String(number);
      return String(number).padStart(width, flag === "" ? fill : flag === "_" ? " " : "0");
    }
    throw new Unsupported(`strftime's format ${directive}`);
  });
  spendText(text.length);
  return text;
}

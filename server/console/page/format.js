// Numbers for people. Bytes are binary, times are short.

const NONE = '–';

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) {
    value /= step;
    ++unit;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`.trim();
}

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

export const bytes = (value) =>
  isNumber(value) ? scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']) : NONE;

export const count = (value) => (isNumber(value) ? value.toLocaleString('en') : NONE);

export function rate(value) {
  if (!isNumber(value)) return NONE;
  return `${value > 0 && value < 10 ? value.toFixed(1) : scaled(value, 1000, ['', 'k', 'M', 'G'])}/s`;
}

export const percent = (ratio) => (isNumber(ratio) ? `${(100 * ratio).toFixed(0)} %` : NONE);

// A call's time.
export function millis(value) {
  if (!isNumber(value) || value <= 0) return NONE;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return value >= 10 ? `${value.toFixed(0)} ms` : `${value.toFixed(2)} ms`;
}

export function duration(millis) {
  if (!isNumber(millis)) return NONE;
  const s = Math.max(0, Math.round(millis / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const instant = (unixMillis) =>
  isNumber(unixMillis) ? new Date(unixMillis).toISOString().replace('T', ' ').slice(0, 19) + 'Z' : NONE;

export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

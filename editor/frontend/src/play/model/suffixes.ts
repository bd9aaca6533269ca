// The suffixes of files by their media types. Pure.
const SUFFIXES: Record<string, string> = {
  "image/png": ".png",
  "image/jpeg": ".jpg",
  "image/webp": ".webp",
  "audio/wav": ".wav",
  "audio/flac": ".flac",
  "audio/ogg": ".ogg",
  "audio/mpeg": ".mp3",
  "video/mp4": ".mp4",
  "video/webm": ".webm",
  "application/zip": ".zip",
};

export function suffixOf(mime: string): string {
  return SUFFIXES[mime] ?? ".bin";
}

// The control service over HTTP, same origin, the browser's own cookie. Every failure is an `ApiError`.
import { parse, print, type Sources } from "../document/json";
import { strings } from "../strings";

export class ApiError extends Error {
  /** `status` 0: nobody answered. `code` is the service's stable one, where it gave one. */
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problems: { code: string; pointer: string; message: string }[] = [],
  ) {
    super(message);
  }
}

export interface Answer<T> {
  value: T;
  etag: string | null;
  /** How numbers were written, for documents that must be written back alike. */
  sources: Sources;
}

export interface Request {
  method?: "GET" | "POST" | "PUT" | "DELETE" | "PATCH";
  body?: unknown;
  sources?: Sources;
  ifMatch?: string | null;
  signal?: AbortSignal;
  /** Let it finish after the page is gone; for at most 64 KiB. */
  keepalive?: boolean;
}

/** Send a request and read JSON (or nothing). Raises ApiError. */
export async function call<T>(path: string, request: Request = {}): Promise<Answer<T>> {
  const response = await send(path, request);
  const text = await response.text();
  const { value, sources } = text ? parse(text) : { value: undefined, sources: new Map() };
  return { value: value as T, etag: response.headers.get("etag"), sources };
}

/** Send a request and hand over the answer unread. Raises ApiError for everything but success. */
export async function send(path: string, request: Request = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  if (request.body !== undefined) headers["Content-Type"] = "application/json";
  if (request.ifMatch) headers["If-Match"] = request.ifMatch;
  let response: Response;
  try {
    response = await fetch(path, {
      method: request.method ?? "GET",
      headers,
      body: request.body === undefined ? null : print(request.body, request.sources),
      credentials: "same-origin",
      signal: request.signal ?? null,
      keepalive: request.keepalive ?? false,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", strings.shell.theServiceDoesNotAnswer);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<ApiError> {
  const fallback = strings.shell.theServiceAnswered(response.status);
  try {
    const problem = (await response.json()) as Record<string, unknown>;
    const message = String(problem["detail"] ?? problem["title"] ?? fallback);
    const problems = Array.isArray(problem["errors"]) ? (problem["errors"] as ApiError["problems"]) : [];
    return new ApiError(response.status, String(problem["code"] ?? ""), message, problems);
  } catch {
    return new ApiError(response.status, "", fallback);
  }
}

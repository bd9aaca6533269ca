// A control service in memory, behind `fetch`: documents with etags, checks that answer when told, and failures.
import { vi } from "vitest";

interface Row {
  text: string;
  etag: string;
  bundled: boolean;
}

export interface Request {
  method: string;
  path: string;
  body: string | null;
  ifMatch: string | null;
  keepalive: boolean;
}

export class FakeService {
  readonly rows = new Map<string, Row>();
  readonly requests: Request[] = [];
  /** Answers of other paths, by `METHOD path`. */
  readonly answers = new Map<string, (request: Request, signal: AbortSignal | null) => Promise<unknown> | unknown>();
  down = false;
  /** Status that every PUT is answered with. */
  refusing: number | null = null;
  private etags = 0;

  constructor() {
    this.answers.set("GET /api/v1/components?tasks=true", () => []);
    this.answers.set("GET /api/v1/deployments", () => []);
    this.answers.set("POST /api/v1/graphs/check", () => ({ ok: true, problems: [] }));
    vi.stubGlobal("fetch", (path: string, init?: RequestInit) => this.fetch(path, init ?? {}));
  }

  put(key: string, value: unknown, bundled = false): string {
    this.etags += 1;
    const etag = `"${this.etags}"`;
    this.rows.set(key, { text: JSON.stringify(value), etag, bundled });
    return etag;
  }

  get(key: string): unknown {
    const row = this.rows.get(key);
    return row && JSON.parse(row.text);
  }

  count(method: string, start: string): number {
    return this.requests.filter((request) => request.method === method && request.path.startsWith(start)).length;
  }

  private async fetch(path: string, init: RequestInit): Promise<Response> {
    const headers = (init.headers ?? {}) as Record<string, string>;
    const method = init.method ?? "GET";
    const request: Request = {
      method,
      path,
      body: (init.body as string | null) ?? null,
      ifMatch: headers["If-Match"] ?? null,
      keepalive: init.keepalive ?? false,
    };
    this.requests.push(request);
    if (this.down) throw new TypeError("no network");
    const answer = this.answers.get(`${method} ${path}`);
    if (answer) {
      const given = await answer(request, init.signal ?? null);
      return given instanceof Response ? given : json(given);
    }
    const [, kind, name] = /^\/api\/v1\/(graphs|placements)\/([^/]+)$/.exec(path) ?? [];
    if (kind && name) return this.document(method, `${kind}/${name}`, request);
    const [, listed] = /^\/api\/v1\/(graphs|placements)$/.exec(path) ?? [];
    return listed ? json(this.list(listed)) : problem(404, "not_found");
  }

  private document(method: string, key: string, request: Request): Response {
    const row = this.rows.get(key);
    if (method === "GET") return row ? answered(row.text, row.etag) : problem(404, "not_found");
    if (this.refusing) return problem(this.refusing, "refused");
    if (request.ifMatch !== (row?.etag ?? null)) return problem(412, "conflict");
    if (method === "DELETE") {
      this.rows.delete(key);
      return new Response(null, { status: 204 });
    }
    const etag = this.put(key, JSON.parse(request.body ?? "null"));
    return json({ name: key, etag }, etag);
  }

  private list(kind: string): unknown[] {
    const found = [...this.rows].filter(([key]) => key.startsWith(`${kind}/`));
    return found.map(([key, row]) => ({ name: key.split("/")[1], etag: row.etag, bundled: row.bundled }));
  }
}

function json(value: unknown, etag?: string): Response {
  return answered(JSON.stringify(value), etag);
}

function answered(text: string, etag?: string): Response {
  return new Response(text, { status: 200, headers: etag ? { etag } : {} });
}

function problem(status: number, code: string): Response {
  return new Response(JSON.stringify({ code, detail: `answered ${status}` }), { status });
}

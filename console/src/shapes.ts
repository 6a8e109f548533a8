/** Types of the API responses, limited to the fields that the console uses. `docs/openapi.json` has the full schema. */

export interface Page<T> {
  items: T[];
  next?: string;
}

/** Identifies a message across sessions. */
export interface Node {
  session: string;
  seq: number;
}

/** A wait of a turn. */
export interface Waiting {
  key: string;
  kind: string;
  deadline?: number;
}

export interface Head {
  name: string;
  at?: Node;
}

export interface Session {
  id: string;
  key?: string;
  state: "idle" | "ready" | "running" | "parked" | "held";
  title: string;
  created: number;
  updated: number;
  turns: number;
  last: number;
  heads: Head[];
  forked_from?: Node;
  active?: string;
  waits: Waiting[];
  wake_at?: number;
  /** Model cost so far. Unknown for old sessions. */
  cost?: string;
  /** How its last turn ended, or `stuck`. */
  last_end?: string;
  last_turn?: string;
}

/** The outcome of a turn, with details. */
export interface End {
  how: string;
  text?: string;
  reason?: string;
  failure?: Failure;
  budget?: string;
}

export interface Failure {
  code: string;
  message?: string;
  detail?: string;
}

export interface Turn {
  id: string;
  session: string;
  index: number;
  state: "queued" | "active" | "ended";
  parent?: Node;
  first: number;
  last: number;
  end?: End;
}

export interface Usage {
  input?: number;
  cache_read?: number;
  cache_write?: number;
  output?: number;
  reasoning?: number;
}

/** A turn with its totals. */
export interface WholeTurn extends Turn {
  agent?: string;
  model?: string;
  accepted: number;
  updated: number;
  usage: Usage;
  cost: string;
  durability: { records: number; bytes: number; commits?: number; waited_ms?: number };
  decisions?: Decided[];
  resumes?: Resume[];
}

/** Records that another lease resumed a turn after a crash or a shutdown. */
export interface Resume {
  seq: number;
  at: number;
  lease: number;
  worker: string;
  /** Number of effects that were already answered. */
  replayed: number;
}

export interface Attachment {
  id: string;
  media_type: string;
  name?: string;
}

export type Part =
  | { type: "text"; text: string }
  | { type: "reasoning"; text: string }
  | { type: "attachment"; attachment: Attachment }
  | { type: "instruction"; text: string }
  | { type: "link"; link: { url: string; kind: "image" | "file"; name?: string } }
  | { type: "sealed" };

export interface ToolUse {
  id: string;
  tool: string;
  arguments: { json: unknown } | { broken: string };
}

export interface Message {
  session: string;
  turn: string;
  seq: number;
  at: number;
  role: "user" | "assistant" | "tool";
  text: string;
  content: { parts?: Part[]; calls?: ToolUse[]; call?: string; tool?: string; result?: unknown };
}

/** The outcome of a policy rule, with parameters. */
export interface Ruling {
  rule: string;
  policy: string;
  decision: string | Record<string, unknown>;
}

/** A policy decision at a policy point of a turn. */
export interface Decided {
  key: string;
  seq: number;
  at: number;
  point: string;
  decision: string;
  reason?: string;
  ruling: Ruling;
  labels?: string[];
}

/** A sink argument of a call and the origin of its value. */
export interface SinkArgument {
  /** JSON pointer to the argument; empty if the call itself is the sink. */
  path: string;
  /** `user`, `agent`, `tool:NAME`, `unknown` or `call`. */
  origin: string;
}

export interface Call {
  id?: string;
  tool: string;
  class?: string;
  ruling?: Ruling;
  labels?: string[];
  provenance?: SinkArgument[];
}

export type EffectState = "open" | "waits" | "done" | "failed" | "refused" | "unknown";

export interface Effect {
  turn: string;
  key: string;
  kind: string;
  state: EffectState;
  seq: number;
  answered?: number;
  from: number;
  until?: number;
  attempts: number;
  request: unknown;
  outcome?: unknown;
  call?: Call;
  decisions?: Decided[];
  usage?: Usage;
  cost?: string;
  hooks?: string[];
  waits?: Waiting[];
  incidents?: Incident[];
  /** Number of times the effect was replayed from the journal after another lease resumed the turn. */
  replays?: number;
}

/** An incident before the outcome of an effect, such as a failed attempt. */
export interface Incident {
  seq: number;
  at: number;
  what: "again" | "failed" | "paced" | "payment" | "stuck";
  attempt?: number;
  /** Start of the failed attempt. */
  from?: number;
  detail?: Record<string, unknown>;
}

/** The full prompt of a model call. */
export interface Shown {
  model: string;
  system: string;
  tools?: unknown[];
  call: unknown;
  messages: Record<string, unknown>[];
}

/** Explains why a session is blocked. */
export interface Why {
  session: string;
  turn?: string;
  standing: "rests" | "ended" | "queued" | "ready" | "running" | "waits" | "held" | "stuck";
  since: number;
  doing?: string;
  /** Worker deaths during the turn, if they block it. */
  deaths?: number;
  held_until?: number;
  failure?: Failure;
  waits: Blocked[];
  queued: number;
}

/** A wait of a turn, and how to complete it. */
export interface Blocked extends Waiting {
  since: number;
  tool?: string;
  arguments?: unknown;
  moved_by: "approval" | "completion" | "time" | "provider" | "budget" | "retry";
  approval?: string;
  who?: string[];
  budget?: string;
  provider?: string;
  failure?: Failure;
  completion?: string;
}

/** A live event, which is not stored. */
export type Live =
  | { type: "text"; key: string; attempt: number; offset: number; text: string }
  | { type: "retracted"; key: string; attempt: number }
  | { type: "running"; key: string; attempt: number }
  | { type: "progress"; key: string; note: string }
  | { type: "output"; key: string; text: string }
  | { type: "replayed"; key: string }
  | { type: "interrupted"; key: string }
  | { type: "prompt_changed"; key: string; at: string }
  | { type: "budget_low"; budget: string }
  | { type: "held"; failure: Failure };

export interface Frame {
  session: string;
  seq?: number;
  turn?: string;
  at?: number;
  type: string;
  data: unknown;
}

/** The identity of the caller. */
export interface Whoami {
  name: string;
  by: string;
  scopes: string;
}

/** Confirms that an input is durable. */
export interface Receipt {
  session: string;
  turn: string;
  seq: number;
}

/** A call that requires approval. */
export interface Pending {
  id: string;
  session: string;
  turn: string;
  call: string;
  tool: string;
  arguments: unknown;
  rule?: string;
  labels?: string[];
  /** Describes the arguments that the model requested, even if a person edited them afterwards. */
  provenance?: SinkArgument[];
  /** The arguments that the model requested, if a person edited them afterwards. */
  original?: unknown;
  who: string[];
  /** The tool's description of what the call would do. */
  preview?: string;
  /** Why approval is required. */
  reason?: string;
  /** Who has approved so far. */
  votes: string[];
  needed: number;
  /** Whether approval for the rest of the session is allowed. */
  for_session: boolean;
  reminded: number;
  /** Model cost of its turn so far. */
  cost: string;
  since: number;
  expires?: number;
}

/** The result of a vote. */
export interface Counted {
  decided: boolean;
  yours: boolean;
  votes?: number;
  of?: number;
}

/** A call with an unknown outcome. */
export interface Unknown {
  call: string;
  tool: string;
  arguments: unknown;
  session: string;
  turn: string;
  since: number;
}

/** The cost of one agent, model, tool or session. */
export interface Spending {
  day?: string;
  name: string;
  replies: number;
  usage: Usage;
  cost: string;
  unpriced: number;
}

export interface Agent {
  name: string;
  first: boolean;
  fingerprint: string;
  model: string;
  tools: string[];
  package?: unknown;
}

/** One version of an agent, a harness or a capability in the database. */
export interface Stored {
  kind: string;
  name: string;
  version: number;
  fingerprint: string;
  at: number;
  /** Absent if this version is a deletion. */
  body?: unknown;
  note?: string;
}

export interface Health {
  state: string;
  durability?: string;
  schema?: number;
}

/** A result of a message search. */
export interface Hit {
  session: string;
  turn: string;
  seq: number;
  at: number;
  role: "user" | "assistant";
  excerpt: string;
}

/** The prompt that a model would receive now. */
export interface Context {
  tokens: number;
  parts: { who: string; tokens: number }[];
  messages: { who: string; tokens: number; text: string }[];
  files: number;
  compactions: number;
}

/** One run of a turn. */
export interface Course {
  calls: { tool: string; arguments: unknown; result: unknown }[];
  end: string;
  answer?: string;
  cost: string;
}

/** A replayed session compared with the original. */
export interface Compared {
  turns: { index: number; input: string; recorded: Course; rerun: Course }[];
  changed: number;
  reused: number;
  ran: number;
  not_made: string[];
  recorded_cost: string;
  rerun_cost: string;
}

/** An approval for the rest of a session. */
export interface Grant {
  id: string;
  session: string;
  tool: string;
  rule: string;
  by: string[];
  at: number;
}

/** An amount of usage. */
export interface Amount {
  tokens?: number;
  money?: string;
  calls?: number;
  millis?: number;
}

/** A budget and its usage. */
export interface Purse {
  name: string;
  spent: Amount;
  held: Amount;
  lost: Amount;
  /** Overrides by an operator of the values in the agent file. */
  set?: Record<string, unknown>;
}

/** An API key, without its secret. */
export interface ApiKey {
  id: string;
  by: string;
  scopes: string;
  created: number;
  expires?: number;
  revoked?: number;
}

/** An entry of the audit log. */
export interface AuditLine {
  no: number;
  at: number;
  by: string;
  act: string;
  subject: string;
  detail: string;
}

/** What the API answers, as far as the console looks at it. The whole is in `docs/openapi.json`. */

/** One page of a list. */
export interface Page<T> {
  items: T[];
  next?: string;
}

/** A message's place over all sessions. */
export interface Node {
  session: string;
  seq: number;
}

/** What a turn waits for. */
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
  /** What its models cost so far; not known of old sessions. */
  cost?: string;
  /** How its last turn ended, or `stuck`. */
  last_end?: string;
  last_turn?: string;
}

/** How a turn ended: the word, and what belongs to it. */
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

/** A turn with what it took. */
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

/** That another lease went on with a turn, after a crash or because a process was shut down. */
export interface Resume {
  seq: number;
  at: number;
  lease: number;
  worker: string;
  /** How many effects were answered before. */
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

/** What a rule decided: a word, or a word with what belongs to it. */
export interface Ruling {
  rule: string;
  policy: string;
  decision: string | Record<string, unknown>;
}

/** What a policy decided at a point of a turn. */
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

/** One argument that matters of a call, and where its value comes from. */
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
  /** How often it was answered from the journal because another lease went on with the turn. */
  replays?: number;
}

/** Something that befell an effect on the way to its outcome. */
export interface Incident {
  seq: number;
  at: number;
  what: "again" | "failed" | "paced" | "payment" | "stuck";
  attempt?: number;
  /** When the attempt that failed began. */
  from?: number;
  detail?: Record<string, unknown>;
}

/** Everything that one model call was shown. */
export interface Shown {
  model: string;
  system: string;
  tools?: unknown[];
  call: unknown;
  messages: Record<string, unknown>[];
}

/** Why a session does not move. */
export interface Why {
  session: string;
  turn?: string;
  standing: "rests" | "ended" | "queued" | "ready" | "running" | "waits" | "held" | "stuck";
  since: number;
  doing?: string;
  /** Worker deaths while the turn ran, where it is held back for them. */
  deaths?: number;
  held_until?: number;
  failure?: Failure;
  waits: Blocked[];
  queued: number;
}

/** One thing that a turn waits for, and what moves it. */
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

/** What happens right now. */
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

/** An event. */
export interface Frame {
  session: string;
  seq?: number;
  turn?: string;
  at?: number;
  type: string;
  data: unknown;
}

/** Who asks. */
export interface Whoami {
  name: string;
  by: string;
  scopes: string;
}

/** An input that is durable. */
export interface Receipt {
  session: string;
  turn: string;
  seq: number;
}

/** A call that waits for somebody's word. */
export interface Pending {
  id: string;
  session: string;
  turn: string;
  call: string;
  tool: string;
  arguments: unknown;
  rule?: string;
  labels?: string[];
  /** Of the values that the model asked for, also if somebody has changed the arguments since. */
  provenance?: SinkArgument[];
  /** What the model asked for, where somebody has changed the arguments since. */
  original?: unknown;
  who: string[];
  /** What the tool says it would do. */
  preview?: string;
  /** Why a word is wanted. */
  reason?: string;
  /** Who has approved it so far, and how many have to. */
  votes: string[];
  needed: number;
  /** Whether it may be approved for the rest of the session. */
  for_session: boolean;
  reminded: number;
  /** What models cost in its turn so far. */
  cost: string;
  since: number;
  expires?: number;
}

/** What became of a word. */
export interface Counted {
  decided: boolean;
  yours: boolean;
  votes?: number;
  of?: number;
}

/** A call whose outcome nobody knows. */
export interface Unknown {
  call: string;
  tool: string;
  arguments: unknown;
  session: string;
  turn: string;
  since: number;
}

/** What was spent on one of something. */
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
  /** Not there where it was deleted. */
  body?: unknown;
  note?: string;
}

export interface Health {
  state: string;
  durability?: string;
  schema?: number;
}

/** A message that was found by its words. */
export interface Hit {
  session: string;
  turn: string;
  seq: number;
  at: number;
  role: "user" | "assistant";
  excerpt: string;
}

/** What a model would be shown now. */
export interface Context {
  tokens: number;
  parts: { who: string; tokens: number }[];
  messages: { who: string; tokens: number; text: string }[];
  files: number;
  compactions: number;
}

/** One course of a turn. */
export interface Course {
  calls: { tool: string; arguments: unknown; result: unknown }[];
  end: string;
  answer?: string;
  cost: string;
}

/** A session that was run again, beside what it was. */
export interface Compared {
  turns: { index: number; input: string; recorded: Course; rerun: Course }[];
  changed: number;
  reused: number;
  ran: number;
  not_made: string[];
  recorded_cost: string;
  rerun_cost: string;
}

/** What was approved for the rest of a session. */
export interface Grant {
  id: string;
  session: string;
  tool: string;
  rule: string;
  by: string[];
  at: number;
}

/** What was used. */
export interface Amount {
  tokens?: number;
  money?: string;
  calls?: number;
  millis?: number;
}

/** A budget, and what counts against it. */
export interface Purse {
  name: string;
  spent: Amount;
  held: Amount;
  lost: Amount;
  /** What an operator set, in place of what an agent's file says. */
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

/** What somebody did. */
export interface AuditLine {
  no: number;
  at: number;
  by: string;
  act: string;
  subject: string;
  detail: string;
}

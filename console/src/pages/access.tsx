/** Access page: approvals for sessions, budgets, API keys, audit log. */
import { useState } from "preact/hooks";
import { get, remove } from "../api.ts";
import { backwards } from "../backwards.ts";
import { ago, count, duration, moment, money } from "../format.ts";
import { useList, useNow, useTitle } from "../hooks.ts";
import { Empty, ReadOn, Wrong } from "../parts/notice.tsx";
import { Text } from "../parts/text.tsx";
import type { Amount, ApiKey, AuditLine, Grant, Purse } from "../shapes.ts";

const TABS = ["Grants", "Budgets", "Keys", "Audit"] as const;

/** Audit entries per request, the maximum that the server allows. */
const AUDIT_PAGE = 500;

export function AccessPage() {
  useTitle("Access");
  const [tab, setTab] = useState<(typeof TABS)[number]>("Grants");
  return (
    <div class="page access">
      <div class="bar">
        <h1>Access</h1>
        <div class="choices" role="group" aria-label="What">
          {TABS.map((name) => <button type="button" aria-pressed={tab === name} onClick={() => setTab(name)}>{name}</button>)}
        </div>
      </div>
      <div class="scrolls" tabIndex={0} role="region" aria-label={tab}>
        {tab === "Grants" && <Grants />}
        {tab === "Budgets" && <Budgets />}
        {tab === "Keys" && <Keys />}
        {tab === "Audit" && <Audit />}
      </div>
    </div>
  );
}

function Grants() {
  const now = useNow(15_000);
  const read = useList<Grant>((page, stop) => get("/v1/grants", page, stop), []);
  const [error, setError] = useState<Error>();
  const revoke = (id: string) => remove(`/v1/grants/${id}`).then(read.again, setError);
  return (
    <>
      <Wrong error={error ?? read.error} />
      {read.value?.length === 0 && <Empty title="No approvals for a session">Approvals for the rest of a session are listed here. You can revoke them.</Empty>}
      {(read.value?.length ?? 0) > 0 && (
        <table>
          <thead><tr><th scope="col">Tool</th><th scope="col">Rule</th><th scope="col">Session</th><th scope="col">By</th><th scope="col" class="num">Since</th><th scope="col"><span class="sr">Revoke</span></th></tr></thead>
          <tbody>
            {read.value?.map((grant) => (
              <tr>
                <td><Text of={grant.tool} /></td>
                <td><code><Text of={grant.rule} /></code></td>
                <td><a href={`/sessions/${grant.session}`}>{grant.session}</a></td>
                <td><Text of={grant.by.join(", ")} /></td>
                <td class="num"><time title={moment(grant.at)}>{ago(grant.at, now)}</time></td>
                <td><button type="button" onClick={() => void revoke(grant.id)}>Revoke<span class="sr"> the approval of <Text of={grant.tool} /></span></button></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={read.more} what="approvals" />
    </>
  );
}

function Budgets() {
  const read = useList<Purse>((page, stop) => get("/v1/budgets", page, stop), []);
  return (
    <>
      <Wrong error={read.error} />
      {read.value?.length === 0 && <Empty title="No budgets yet">Budgets of agents, sessions and turns show what was used and what is left.</Empty>}
      {(read.value?.length ?? 0) > 0 && (
        <table>
          <thead><tr><th scope="col">Of</th><th scope="col">Used</th><th scope="col">Reserved</th><th scope="col">Lost</th><th scope="col">Set by an operator</th></tr></thead>
          <tbody>
            {read.value?.map((purse) => (
              <tr>
                <td><Text of={purse.name} /></td>
                <td>{amount(purse.spent)}</td>
                <td>{amount(purse.held)}</td>
                <td>{amount(purse.lost)}</td>
                <td>{purse.set ? Object.entries(purse.set).map(([name, value]) => <span class="chip">{name.replaceAll("_", " ")} {String(value)}</span>) : <span class="quiet">no</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={read.more} what="budgets" />
    </>
  );
}

function amount({ tokens = 0, money: cost = "0", calls = 0, millis = 0 }: Amount): string {
  const parts = [tokens > 0 && `${count(tokens)} tokens`, Number(cost) > 0 && money(cost), calls > 0 && `${count(calls)} ${calls === 1 ? "call" : "calls"}`, millis > 0 && duration(millis)];
  return parts.filter(Boolean).join(" · ") || "–";
}

function Keys() {
  const now = useNow(15_000);
  const read = useList<ApiKey>((page, stop) => get("/v1/keys", page, stop), []);
  const [error, setError] = useState<Error>();
  const revoke = (id: string) => remove(`/v1/keys/${id}`).then(read.again, setError);
  return (
    <>
      <Wrong error={error ?? read.error} />
      {read.value?.length === 0 && <Empty title="No API keys">outlast keys create creates one.</Empty>}
      {(read.value?.length ?? 0) > 0 && (
        <table>
          <thead><tr><th scope="col">Who</th><th scope="col">May</th><th scope="col">Key</th><th scope="col" class="num">Made</th><th scope="col">Counts</th></tr></thead>
          <tbody>
            {read.value?.map((key) => (
              <tr>
                <td><Text of={key.by} /></td>
                <td><Text of={key.scopes} /></td>
                <td><code>{key.id}</code></td>
                <td class="num"><time title={moment(key.created)}>{ago(key.created, now)}</time></td>
                <td>{key.revoked !== undefined ? <span title={moment(key.revoked)}>revoked</span> : <button type="button" class="danger" onClick={() => void revoke(key.id)}>Revoke<span class="sr"> the key of <Text of={key.by} /></span></button>}{key.expires !== undefined && <span class="quiet"> until {moment(key.expires)}</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={read.more} what="keys" />
    </>
  );
}

function Audit() {
  const now = useNow(15_000);
  const read = useList<AuditLine>(({ limit, cursor }, stop) => backwards(limit, cursor, (after) => get("/v1/audit", { after, limit: AUDIT_PAGE }, stop)), []);
  return (
    <>
      <Wrong error={read.error} />
      {read.value?.length === 0 && <Empty title="No entries yet">Cancelled turns, approvals, settled calls, deletions and new keys are listed here, with the person who did it.</Empty>}
      {(read.value?.length ?? 0) > 0 && (
        <table>
          <thead><tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th><th scope="col">To</th><th scope="col">Detail</th></tr></thead>
          <tbody>
            {read.value?.map((line) => (
              <tr>
                <td class="when"><time title={moment(line.at)}>{ago(line.at, now)}</time></td>
                <td><Text of={line.by} /></td>
                <td><code>{line.act}</code></td>
                <td><Text of={line.subject} /></td>
                <td><Text of={line.detail} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <ReadOn more={read.more} what="acts" />
    </>
  );
}

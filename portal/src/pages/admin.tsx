// Admin: users, groups, virtual clusters, alerts, settings, audit log. Other users get a sentence.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { auditReport, listAlerts, serverSettings } from "../admin_api.ts";
import { Empty, ErrorNotice, Loading } from "../components/notices.tsx";
import { Tabs } from "../components/tabs.tsx";
import { exactTime, shortTime } from "../format.ts";
import { usePolled } from "../live.ts";
import { session } from "../session.ts";
import { Groups, VirtualClusters } from "./admin_groups.tsx";
import { Users } from "./admin_users.tsx";

const REFRESH_MS = 15_000;
const TYPING_MS = 300;
const TABS = [
  { name: "users", label: "Users" },
  { name: "groups", label: "Groups" },
  { name: "clusters", label: "Virtual clusters" },
  { name: "alerts", label: "Alerts" },
  { name: "settings", label: "Settings" },
  { name: "audit", label: "Audit log" },
];

export function AdminPage() {
  useEffect(() => {
    document.title = "Admin · OpenPAI";
  }, []);
  if (!session.value?.admin) {
    return (
      <Empty title="For administrators">
        <p>Users, groups, settings and the audit log are shown to administrators of the cluster. Ask one of them.</p>
      </Empty>
    );
  }
  return (
    <>
      <div class="head">
        <h1>Admin</h1>
      </div>
      <Tabs tabs={TABS} label="Parts of the administration">
        {(tab) => (
          <>
            {tab === "users" && <Users />}
            {tab === "groups" && <Groups />}
            {tab === "clusters" && <VirtualClusters />}
            {tab === "alerts" && <Alerts />}
            {tab === "settings" && <ServerSettings />}
            {tab === "audit" && <AuditLog />}
          </>
        )}
      </Tabs>
    </>
  );
}

function Alerts() {
  const alerts = usePolled("alerts", listAlerts, REFRESH_MS);
  if (alerts.error) return <ErrorNotice error={alerts.error} />;
  if (!alerts.value) return <Loading what="the alerts" />;
  if (!alerts.value.length) {
    return (
      <div class="card">
        <Empty title="No alerts">
          <p>Jobs that wait for more than half an hour, and a server that lags, appear here.</p>
        </Empty>
      </div>
    );
  }
  return (
    <div class="card padded">
      <ul class="rows plain">
        {alerts.value.map((alert) => (
          <li key={alert.fingerprint}>
            <span>{alert.annotations.summary}</span>
            <span class="quiet">since {exactTime(Date.parse(alert.startsAt))}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function ServerSettings() {
  const settings = usePolled("settings", serverSettings, REFRESH_MS);
  if (settings.error) return <ErrorNotice error={settings.error} />;
  if (!settings.value) return <Loading what="the settings" />;
  return (
    <div class="stack">
      <p class="quiet">As the server uses them. They are changed in cluster.yaml, and take effect when it starts.</p>
      <div class="card scroll">
        <table class="settings">
          <caption class="sr">Settings</caption>
          <thead>
            <tr>
              <th>Setting</th>
              <th>Value</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(settings.value).map(([name, value]) => (
              <tr key={name}>
                <td>{name}</td>
                <td class="mono message">{shown(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function shown(value: unknown): string {
  if (value === null) return "none";
  if (typeof value !== "object") return String(value);
  const parts = Array.isArray(value) ? value.map(shown) : Object.entries(value).map(([key, one]) => `${key}: ${shown(one)}`);
  return parts.length ? parts.join(Array.isArray(value) ? "; " : ", ") : "none";
}

const aboutOf = ({ about }: { readonly about?: unknown }) => (typeof about === "string" ? about : "");

function AuditLog() {
  const typed = useSignal("");
  const keyword = useSignal("");
  useEffect(() => {
    const timer = setTimeout(() => (keyword.value = typed.value), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed.value, keyword]);
  const now = Date.now();
  const { value: report, error } = usePolled(`audit ${keyword.value}`, (signal) => auditReport(keyword.value, signal), REFRESH_MS);
  if (report && !report.isKept) {
    return (
      <div class="card">
        <Empty title="No audit log">
          <p>
            An embedded cluster, which is for one user, writes none. A cluster that <code>paicluster serve</code> runs does.
          </p>
        </Empty>
      </div>
    );
  }
  return (
    <div class="stack">
      <div class="filters">
        <input
          type="search"
          aria-label="Search the audit log"
          placeholder="User, address, path …"
          value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
      </div>
      {error && <ErrorNotice error={error} />}
      {!report && !error && <Loading what="the audit log" />}
      {report && !report.entries.length && (
        <div class="card">
          <Empty title="No entries">
            <p>{keyword.value ? "No recent entry contains this." : "Changes and logins appear here."}</p>
          </Empty>
        </div>
      )}
      {report && report.entries.length > 0 && (
        <div class="card scroll" tabIndex={0} role="region" aria-label="Audit log">
          <table class="audit">
            <caption class="sr">Audit log, newest first</caption>
            <thead>
              <tr>
                <th>Time</th>
                <th class="c-user">User</th>
                <th>Request</th>
                <th class="minor">About</th>
                <th>Status</th>
                <th class="minor">Address</th>
              </tr>
            </thead>
            <tbody>
              {report.entries.map((entry, at) => (
                <tr key={`${entry.time} ${at}`}>
                  <td title={exactTime(Date.parse(entry.time))}>{shortTime(Date.parse(entry.time), now)}</td>
                  <td class="c-user" title={entry.user ?? ""}>
                    {entry.user ?? "–"}
                  </td>
                  <td class="mono message request">
                    {entry.refused ? `${entry.refused} refused requests` : `${entry.method ?? ""} ${entry.path ?? ""}`}
                  </td>
                  <td class="minor c-about" title={aboutOf(entry)}>
                    {aboutOf(entry)}
                  </td>
                  <td>{entry.status ?? ""}</td>
                  <td class="mono minor">{entry.address ?? ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

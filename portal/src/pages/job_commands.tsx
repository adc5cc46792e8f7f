// Commands to copy: what `pai` and `ssh` do with this job.
import { sshOf } from "../api.ts";
import type { JobDetail } from "../api_types.ts";
import { Command } from "../components/command.tsx";
import { isFinished } from "../format.ts";
import { usePolled } from "../live.ts";
import { session } from "../session.ts";

const REFRESH_MS = 60_000;
/** Tasks whose `ssh` commands are shown; the others differ in the name only. */
const MAX_TASKS = 8;

export function JobCommands({ framework, job }: { framework: string; job: JobDetail }) {
  const [user = "", ...rest] = framework.split("~");
  const isOwn = user === session.value?.user;
  const name = isOwn ? rest.join("~") : framework;
  const hasFinished = isFinished(job.jobStatus.state);
  const commands: [string, string][] = [
    [hasFinished ? "Its log" : "Follow the log", `pai logs ${hasFinished ? "" : "-f "}${name}`],
    ["State and tasks", `pai job-status ${name}`],
    ["Output files", `pai job-outputs ${name}`],
    ...(hasFinished ? finishedCommands(name) : runningCommands(name)),
  ];
  return (
    <div class="card padded commands">
      {commands.map(([label, text]) => (
        <div key={label}>
          <p class="quiet">{label}</p>
          <Command text={text} />
        </div>
      ))}
      {isOwn && !hasFinished && <PlainSsh framework={framework} />}
    </div>
  );
}

function runningCommands(name: string): [string, string][] {
  return [
    ["What its tasks use", `pai top ${name}`],
    ["A shell in the job", `pai exec -t ${name}`],
    ["A shell by SSH", `pai ssh-container -j ${name}`],
    ["Its port 8888 on your machine", `pai forward ${name} 8888`],
    ["Stop it", `pai stop-job ${name}`],
  ];
}

function finishedCommands(name: string): [string, string][] {
  return [
    ["Metrics that it logged", `pai job-metrics ${name}`],
    ["Run it again", `pai resubmit ${name}`],
    ["Delete it", `pai delete-job ${name}`],
  ];
}

/** For machines without `pai`: the key of the job, and the address of each task. */
function PlainSsh({ framework }: { framework: string }) {
  const { value, error } = usePolled(`ssh ${framework}`, (signal) => sshOf(framework, signal), REFRESH_MS);
  if (error) return <p class="quiet whole">No plain SSH: {error.hint || error.message}</p>;
  if (!value) return null;
  const { privateKeyFileName: key, privateKeyDirectDownloadLink: link } = value.keyPair;
  return (
    <div class="whole">
      <p class="quiet">
        Without <code>pai</code>, any SSH client with the{" "}
        {link ? (
          <a href={link} download={key}>
            key of the job
          </a>
        ) : (
          "key of the job"
        )}
        , which only you may read (<code>chmod 600 {key}</code>)
      </p>
      {value.containers.slice(0, MAX_TASKS).map(({ id, sshIp, sshPort, user = "root" }) => (
        <Command key={id} text={`ssh -i ${key} -p ${sshPort} ${user}@${sshIp}`} />
      ))}
      {value.containers.length > MAX_TASKS && (
        <p class="quiet">
          The first {MAX_TASKS} of {value.containers.length} tasks.
        </p>
      )}
    </div>
  );
}

// Drives Microsoft's JavaScript SDK against a cluster; prints what it got as one JSON object.
const { PAIV1, PAIV2 } = require('@microsoft/openpai-js-sdk');
const [uri, username, password, name, role] = process.argv.slice(2);

const job = {
  protocolVersion: 2,
  name,
  type: 'job',
  prerequisites: [{ name: 'image', type: 'dockerimage', uri: 'ubuntu:22.04' }],
  taskRoles: {
    main: {
      instances: 1,
      dockerImage: 'image',
      resourcePerInstance: { cpu: 1, memoryMB: 64, gpu: 0 },
      commands: ['echo "printed by a job"'],
    },
  },
};

const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
const refused = async (promise) => {
  try {
    await promise;
    return null;
  } catch (error) {
    const data = error.data || {};
    return { code: data.code, message: data.message || error.message };
  }
};

async function asUser(pai, got) {
  got.info = await pai.api.getClusterInfo();
  got.login = await pai.authn.basicLogin();
  got.created = await pai.job.createJob(job);
  got.again = await refused(pai.job.createJob(job));
  let status = await pai.job.getJob(username, name);
  while (['WAITING', 'RUNNING'].includes(status.jobStatus.state)) {
    await pause();
    status = await pai.job.getJob(username, name);
  }
  got.status = status;
  got.attempt = await pai.job.getJob(username, name, 0);
  got.config = await pai.job.getJobConfig(username, name);
  got.list = await pai.job.listJobs({ username, limit: 5, withTotalCount: true });
  got.tagged = await pai.job.addTag(username, name, 'mine');
  got.untagged = await pai.job.deleteTag(username, name, 'mine');
  got.task = await pai.job.getTask(username, name, 0, 'main', 0);
  got.logs = await pai.job.getTaskLogs(username, name, 0, 'main', 0, 0, true);
  got.events = await pai.job.listEvents(username, name);
  got.healthz = await pai.jobHistory.getJobAttemptsHealthz(username, name);
  got.attempts = await pai.jobHistory.getJobAttempts(username, name);
  got.oneAttempt = await pai.jobHistory.getJobAttempt(username, name, 0);
  got.stopped = await pai.job.updateJobExecutionType(username, name, 'STOP');
  got.noJob = await refused(pai.job.getJob(username, 'nothing'));
  got.clusters = await pai.virtualCluster.listVirtualClusters();
  got.cluster = await pai.virtualCluster.getVirtualCluster('default');
  got.storages = await pai.storage.getStorages();
  got.me = await pai.user.getUser(username);
  const all = { username, email: 'all@example.com', oldPassword: password, newPassword: password };
  got.self = await pai.user.updateUserSelf(all, false);
  got.users = await pai.user.getAllUser();
  got.application = await pai.token.createApplicationToken();
  got.tokens = await pai.token.getTokens();
  got.revoked = await pai.token.deleteToken(got.application.token);
  got.notAdmin = await refused(pai.user.createUser({ username: 'x', password: 'a password' }));
}

async function asAdmin(pai, got) {
  const user = { username: 'carol', password: 'a good password', email: '', virtualCluster: ['default'], admin: false };
  got.user = await pai.user.createUser(user);
  got.updated = await pai.user.updateUser({ username: 'carol', email: 'carol@example.com' }, true);
  got.carol = await pai.user.getUser('carol');
  got.group = await pai.group.createGroup({ groupname: 'lab', description: 'a lab', externalName: '', extension: {} });
  got.joined = await pai.user.updateUserGroup('carol', 'lab');
  got.members = await pai.group.getGroupMembers('lab');
  got.groups = await pai.group.getAllGroup();
  got.left = await pai.user.deleteUserGroup('carol', 'lab');
  got.nodes = await pai.kubernetes.getK8sNodes();
  got.pods = await pai.kubernetes.getK8sPods();
  got.removed = await pai.user.deleteUser('carol');
  got.noGroup = await pai.group.deleteGroup('lab');
}

(async () => {
  const got = {};
  const pai = new PAIV2.OpenPAIClient({ pai_uri: uri, username, password });
  await (role === 'admin' ? asAdmin : asUser)(pai, got);
  console.log(JSON.stringify(got));
})().catch((error) => {
  console.error(error && error.data ? JSON.stringify(error.data) : '', error && error.stack ? error.stack : error);
  process.exit(1);
});

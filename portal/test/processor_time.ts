// Processor time of this process: other work of the machine does not lengthen it.
export function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

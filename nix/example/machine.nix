# An instance. What makes the machine puts identity/ and then agent.env into
# /var/lib/nstance-agent, and the agent registers.
{
  networking.hostName = "machine";

  services.nstance-agent = {
    enable = true;
    environment.NSTANCE_REPORT_INTERVAL = "10s";
  };
}

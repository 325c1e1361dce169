# A machine that runs a shard for itself: its storage is a directory and its instances are
# processes. Where there is a cloud, only `settings` and `storage` differ.
{ config, ... }:
{
  networking.hostName = "server";

  services.nstance-server = {
    enable = true;
    shard = "example";
    storage.provider = "dir";
    # 32 characters, made once: head -c 24 /dev/urandom | base64
    credentials.encryption-key = "/etc/nstance/encryption-key";
    keepProcesses = true;
    openFirewall = true;
    settings = {
      cluster = {
        id = "example";
        secrets.encryption_key = {
          provider = "file";
          source = "/run/credentials/nstance-server.service/encryption-key";
        };
      };
      server = {
        provider = {
          kind = "process";
          options = {
            dir = "/var/lib/nstance-server/agents";
            agent = "${config.services.nstance-agent.package}/bin/nstance-agent";
          };
        };
        subnet_pools.workers = [ "local" ];
      };
      templates.knd = {
        kind = "knd";
        arch = "amd64";
        subnet_pool = "workers";
      };
      groups.default.web = {
        template = "knd";
        size = 2;
      };
    };
  };
}

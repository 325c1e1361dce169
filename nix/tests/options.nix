# What the modules take, and what they refuse and in which words. `says` is for those who can
# see an error: Nix itself only knows that there was one.
let
  server = settings: {
    services.nstance-server = {
      enable = true;
      shard = "a";
      storage.bucket = "b";
    }
    // settings;
  };
  agent = settings: {
    services.nstance-agent = {
      enable = true;
    }
    // settings;
  };
in
{
  good = {
    nothing = { };
    server = server { };
    server-on-a-directory = server {
      storage.provider = "dir";
      storage.bucket = "/srv/nstance";
    };
    server-for-docker = server {
      extraGroups = [ "docker" ];
      environmentFiles = [ "/run/secrets/s3.env" ];
    };
    agent = agent { };
    agent-of-another-group = agent {
      group = "kubelet";
      environment.NSTANCE_DEBUG = "true";
    };
  };

  bad = {
    shard-missing = {
      module.services.nstance-server = {
        enable = true;
        storage.bucket = "b";
      };
      says = "services.nstance-server.shard";
    };
    shard-invalid = {
      module = server { shard = "US_West"; };
      says = "services.nstance-server.shard";
    };
    storage-unknown = {
      module = server { storage.provider = "ftp"; };
      says = "services.nstance-server.storage.provider";
    };
    bucket-is-a-directory = {
      module = server { storage.bucket = "/srv/nstance"; };
      says = "services.nstance-server.storage.bucket: /srv/nstance is a directory";
    };
    directory-is-a-bucket = {
      module = server {
        storage.provider = "dir";
        storage.bucket = "b";
      };
      says = "services.nstance-server.storage.bucket: b is not an absolute path";
    };
    flag-of-another-type = {
      module = server { flags.agent-addr = 8994; };
      says = "services.nstance-server.flags.agent-addr";
    };
    flag-unknown = {
      module = server { flags.agent-address = "0.0.0.0:8994"; };
      says = "services.nstance-server.flags.agent-address";
    };
    address-without-a-port = {
      module = server {
        openFirewall = true;
        flags.agent-addr = "0.0.0.0";
      };
      says = "services.nstance-server.flags.agent-addr: 0.0.0.0 has no port";
    };
    environment-of-another-type = {
      module = server { environment.AWS_REGION = [ "us-west-2" ]; };
      says = "services.nstance-server.environment.AWS_REGION";
    };
    instances-that-would-end = {
      module = server { settings.server.provider.kind = "process"; };
      says = "services.nstance-server.keepProcesses";
    };
    files-without-a-path = {
      module = server { environmentFiles = [ "secrets.env" ]; };
      says = "services.nstance-server.environmentFiles";
    };
    credential-misnamed = {
      module = server { credentials."a b:c" = "/run/secrets/key"; };
      says = "services.nstance-server.credentials: a b:c:";
    };
    credential-without-a-path = {
      module = server { credentials.key = "key"; };
      says = "services.nstance-server.credentials.key";
    };
    agent-folder-moved = {
      module = agent { environment.NSTANCE_RECV_DIR = "/etc/nstance"; };
      says = "services.nstance-agent.environment: NSTANCE_RECV_DIR:";
    };
    agent-variable-of-others = {
      module = agent { environment.AWS_REGION = "us-west-2"; };
      says = "services.nstance-agent.environment: AWS_REGION:";
    };
    agent-option-unknown = {
      module = agent { identityDir = "/etc/nstance"; };
      says = "services.nstance-agent.identityDir";
    };
  };
}

# The options of the NixOS module of nstance-server.
{
  lib,
  packages,
  settingsType,
}:
let
  inherit (lib) mkOption types;
  optionalStr =
    description: example:
    mkOption {
      type = types.nullOr types.str;
      default = null;
      inherit description example;
    };
in
{
  enable = lib.mkEnableOption "nstance-server, which manages the instances of one shard";

  package = mkOption {
    type = types.package;
    default = packages.nstance-server;
    defaultText = lib.literalExpression "nstance.packages.\${system}.nstance-server";
    description = "The nstance-server package to use.";
  };

  adminPackage = mkOption {
    type = types.package;
    default = packages.nstance-admin;
    defaultText = lib.literalExpression "nstance.packages.\${system}.nstance-admin";
    description = "The nstance-admin package to use. It writes {option}`settings` to the storage, and is installed for all users.";
  };

  shard = mkOption {
    type = types.strMatching "[a-z0-9]+(-[a-z0-9]+)*";
    example = "us-west-2a";
    description = "ID of the shard. Several servers may have the same shard: one leads, the others are standbys.";
  };

  storage = {
    provider = mkOption {
      type = types.enum [
        "s3"
        "dir"
      ];
      default = "s3";
      description = "Kind of object storage: `s3` for a service with the S3 API, `dir` for a directory.";
    };
    bucket = mkOption {
      type = types.str;
      default = "/var/lib/nstance-server/bucket";
      example = "example-nstance";
      description = "Name of the bucket, or with `dir` the absolute path of the directory. The default only works with `dir`.";
    };
    insecure = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether to allow plain HTTP to storage and AWS secrets on other machines. Anything on the
        network in between can then read and change the data.
      '';
    };
  };

  settings = mkOption {
    type = types.nullOr settingsType;
    default = null;
    example = lib.literalExpression ''{ cluster.id = "example"; groups.default.web = { template = "knd"; size = 2; }; }'';
    description = ''
      The shard's static config, which is written to the storage before the server starts. It is
      validated when the machine is built. It must not contain secrets, since all users of the
      machine can read it. `null` keeps the config in the storage. At most one of a shard's servers
      may set it.
    '';
  };

  flags =
    lib.mapAttrs
      (name: example: optionalStr "Value of the flag `--${name}` of nstance-server, see docs/server.md. `null` means its default." example)
      {
        id = "server-1";
        self = "i-0123456789abcdef0";
        advertise-host = "10.0.0.1";
        health-addr = "0.0.0.0:8990";
        election-addr = "0.0.0.0:8991";
        registration-addr = "0.0.0.0:8992";
        operator-addr = "0.0.0.0:8993";
        agent-addr = "0.0.0.0:8994";
        client-certificate-life = "2160h";
        log-format = "json";
        instance-registration-addrs = "10.0.0.1:8992,10.0.0.2:8992";
        instance-agent-addrs = "10.0.0.1:8994,10.0.0.2:8994";
      };

  environment = mkOption {
    type = types.attrsOf types.str;
    default = { };
    example = {
      AWS_REGION = "us-west-2";
    };
    description = ''
      Environment variables of the server. All users of the machine can read them, so use
      {option}`environmentFiles` or {option}`credentials` for secrets.
    '';
  };

  environmentFiles = mkOption {
    type = types.listOf (types.strMatching "-?/[^%]*");
    default = [ ];
    example = [ "/run/secrets/nstance.env" ];
    description = "Files with more environment variables, such as access keys of the object storage. systemd reads them as root.";
  };

  credentials = mkOption {
    type = types.attrsOf (types.strMatching "/[^%:]*");
    default = { };
    example = {
      encryption-key = "/run/secrets/nstance-encryption-key";
    };
    description = ''
      Files that only the server can read, by name. The server reads each as
      `/run/credentials/nstance-server.service/NAME`, a path that the shard's config can contain:
      `"encryption_key": { "provider": "file", "source": … }`.
    '';
  };

  extraGroups = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "docker" ];
    description = "Additional groups of the server's user. The docker provider needs the container engine's group.";
  };

  keepProcesses = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether processes that the server started keep running when it stops. Required by the process
      provider, whose instances are such processes.
    '';
  };

  openFirewall = mkOption {
    type = types.bool;
    default = false;
    description = "Whether to open the ports for other servers, instances and operators in the firewall.";
  };
}

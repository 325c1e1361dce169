# The options of the NixOS module of nstance-server.
{ lib, packages }:
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
  enable = lib.mkEnableOption "nstance-server, which keeps the machines of one shard";

  package = mkOption {
    type = types.package;
    default = packages.nstance-server;
    defaultText = lib.literalExpression "nstance.packages.\${system}.nstance-server";
    description = "The package of nstance-server.";
  };

  adminPackage = mkOption {
    type = types.package;
    default = packages.nstance-admin;
    defaultText = lib.literalExpression "nstance.packages.\${system}.nstance-admin";
    description = "The package of nstance-admin, which puts {option}`config` into the storage and is in the path of every user.";
  };

  shard = mkOption {
    type = types.strMatching "[a-z0-9]+(-[a-z0-9]+)*";
    example = "us-west-2a";
    description = "The shard that this server runs. Several servers may run one: one of them leads.";
  };

  storage = {
    provider = mkOption {
      type = types.enum [
        "s3"
        "dir"
      ];
      default = "s3";
      description = "Where the bucket is: `s3` for anything that speaks S3, `dir` for a directory.";
    };
    bucket = mkOption {
      type = types.str;
      default = "/var/lib/nstance-server/bucket";
      example = "example-nstance";
      description = "The bucket's name, or a directory for `dir`. The default is for `dir` alone.";
    };
  };

  config = mkOption {
    type = types.nullOr (types.attrsOf types.anything);
    default = null;
    example = lib.literalExpression ''{ cluster.id = "example"; groups.default.web = { template = "knd"; size = 2; }; }'';
    description = ''
      The shard's static config, to be put into the storage before the server starts. It is
      checked when the machine is built. Everybody on the machine can read it, so it must hold no
      secret. `null` leaves what is in the storage to somebody else,
      which is how it has to be for all but one of a shard's servers.
    '';
  };

  settings =
    lib.mapAttrs
      (name: example: optionalStr "The flag `--${name}` of nstance-server: see docs/server.md." example)
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
      Environment of the server. Everybody on the machine can read it: for secrets there are
      {option}`environmentFiles` and {option}`credentials`.
    '';
  };

  environmentFiles = mkOption {
    type = types.listOf (types.strMatching "-?/[^%]*");
    default = [ ];
    example = [ "/run/secrets/nstance.env" ];
    description = "Files with further environment, such as keys of the object storage, read by systemd as root.";
  };

  credentials = mkOption {
    type = types.attrsOf (types.strMatching "/[^%:]*");
    default = { };
    example = {
      encryption-key = "/run/secrets/nstance-encryption-key";
    };
    description = ''
      Files that only the server may read, by name: it finds each at
      `/run/credentials/nstance-server.service/NAME`. The shard's config names one with
      `"encryption_key": { "provider": "file", "source": … }`.
    '';
  };

  extraGroups = mkOption {
    type = types.listOf types.str;
    default = [ ];
    example = [ "docker" ];
    description = "Groups that the server's user is in besides its own. The docker provider wants the engine's.";
  };

  keepProcesses = mkOption {
    type = types.bool;
    default = false;
    description = ''
      Whether processes that the server started outlive it. The process provider wants that:
      its instances are such processes.
    '';
  };

  openFirewall = mkOption {
    type = types.bool;
    default = false;
    description = "Whether the ports for other servers, instances and operators are opened.";
  };
}

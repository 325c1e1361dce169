# The NixOS module of nstance-agent: docs/nix.md.
packagesOf:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.services.nstance-agent;
  state = "/var/lib/nstance-agent";
  wrong = lib.filter (
    name: builtins.match "NSTANCE_[A-Z0-9_]+" name == null || lib.hasSuffix "_DIR" name
  ) (builtins.attrNames cfg.environment);
in
{
  options.services.nstance-agent = {
    enable = lib.mkEnableOption "nstance-agent, which registers this machine and receives its files";

    package = mkOption {
      type = types.package;
      default = (packagesOf pkgs).nstance-agent;
      defaultText = lib.literalExpression "nstance.packages.\${system}.nstance-agent";
      description = "The nstance-agent package to use.";
    };

    environmentFile = mkOption {
      type = types.strMatching "/[^%]*";
      default = "${state}/agent.env";
      description = ''
        File with `NSTANCE_INSTANCE_ID`, `NSTANCE_SERVER_REGISTRATION_ADDR` and
        `NSTANCE_SERVER_AGENT_ADDR`. The creator of the machine, such as its user data, writes
        `ca.crt` and `nonce.jwt` to `${state}/identity`, and this file last. The agent starts within
        ten seconds after that.
      '';
    };

    environment = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        NSTANCE_REPORT_INTERVAL = "10s";
      };
      description = "More environment variables of the agent, see docs/agent.md.";
    };

    group = mkOption {
      type = types.str;
      default = "nstance-agent";
      description = "Group that can read the files that the agent receives. Add the users of services that need them.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = wrong == [ ];
        message = "services.nstance-agent.environment: ${toString wrong}: want names that begin with NSTANCE_ and don't end in _DIR";
      }
    ];

    users.users.nstance-agent = {
      isSystemUser = true;
      inherit (cfg) group;
      description = "Nstance agent";
    };
    users.groups.${cfg.group} = { };

    environment.systemPackages = [ cfg.package ];

    # Created before the agent starts, so that the creator of the machine can write to them.
    systemd.tmpfiles.rules = [
      "d ${state} 0750 nstance-agent ${cfg.group}"
      "d ${state}/identity 0700 nstance-agent ${cfg.group}"
    ];

    systemd.services.nstance-agent = {
      description = "Nstance agent: identity, certificates and files of this machine";
      documentation = [ "https://github.com/nstance/nstance/blob/main/docs/agent.md" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      wantedBy = [ "multi-user.target" ];
      # A machine may get its settings long after its boot.
      startLimitIntervalSec = 0;
      environment = {
        NSTANCE_IDENTITY_DIR = "${state}/identity";
        NSTANCE_KEYS_DIR = "${state}/keys";
        NSTANCE_RECV_DIR = "${state}/recv";
      }
      // cfg.environment;
      serviceConfig = import ./hardening.nix // {
        # root wrote the identity, and the agent has to replace and remove its files.
        ExecStartPre = "-+${pkgs.coreutils}/bin/chown --recursive --no-dereference nstance-agent:${cfg.group} ${state}/identity";
        ExecStart = "${cfg.package}/bin/nstance-agent";
        EnvironmentFile = cfg.environmentFile;
        Restart = "always";
        RestartSec = 1;
        RestartSteps = 5;
        RestartMaxDelaySec = 10;

        User = "nstance-agent";
        Group = cfg.group;
        StateDirectory = "nstance-agent";
        StateDirectoryMode = "0750";
        UMask = "0027";
      };
    };
  };
}

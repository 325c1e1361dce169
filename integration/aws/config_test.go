//go:build integration

package aws

import (
	"encoding/json"
	"path/filepath"
	"strings"

	dev "github.com/nstance/nstance/pkg/dev/aws"
)

// userdata is the boot script of a machine, run by cloud-init.
const userdata = `#!/bin/sh
set -eu
mkdir identity keys recv
cat > identity/ca.crt <<'END'
{{ .Cluster.CACert }}
END
printf %s {{ quote .Nonce }} > identity/nonce.jwt
export NSTANCE_IDENTITY_DIR="$PWD/identity" NSTANCE_KEYS_DIR="$PWD/keys" NSTANCE_RECV_DIR="$PWD/recv"
export NSTANCE_INSTANCE_ID={{ quote .Instance.ID }} NSTANCE_INSTANCE_IPV4="$MACHINE_IPV4"
export NSTANCE_PROVIDER=aws NSTANCE_SPOT_POLL_INTERVAL=1s NSTANCE_REPORT_INTERVAL=2s
export NSTANCE_SERVER_REGISTRATION_ADDR={{ quote .Server.RegistrationAddr }} NSTANCE_SERVER_AGENT_ADDR={{ quote .Server.AgentAddr }}
exec @agent@
`

// config is the config of both servers.
func (f *fixture) config(interfaceID string) string {
	script, err := json.Marshal(strings.ReplaceAll(userdata, "@agent@", filepath.Join(f.bin, "nstance-agent")))
	must(f.t, err)
	return strings.NewReplacer("CLUSTER", cluster, "ADDRESS", leaderAddress.String(), "INTERFACE", interfaceID, "SUBNET", dev.SubnetA,
		"IMAGE_OWNER", dev.Account, "USERDATA", string(script), "TARGETS", targetGroup, "KEYNAME", keyName).Replace(`{
  "cluster": { "id": "CLUSTER", "secrets": { "encryption_key": { "provider": "aws-secrets-manager", "source": "KEYNAME" } } },
  "server": {
    "provider": { "kind": "aws", "region": "us-east-1", "zone": "us-east-1a" },
    "leader_network": { "ipv4": "ADDRESS", "interface_id": "INTERFACE" },
    "advertise": { "registration_addr": "ADDRESS:8992", "operator_addr": "ADDRESS:8993", "agent_addr": "ADDRESS:8994" },
    "leader_election": { "renew_interval": "2s", "lease_duration": "6s", "fence_window": "1s" },
    "subnet_pools": { "workers": ["SUBNET"] },
    "default_drain_timeout": "2s",
    "create_backoff": { "settle": "1s", "max": "2s" },
    "garbage_collection": { "interval": "5s", "registration_timeout": "60s" },
    "health": { "report_interval": "2s", "missed_reports": 5, "shutdown_grace": "5s" },
  },
  "images": {
    "agent": { "provider": "aws", "owners": ["IMAGE_OWNER"], "filters": [{ "name": "name", "values": ["agent-amd64*"] }] },
  },
  "load_balancers": { "web": { "provider": "aws", "target_group_arns": ["TARGETS"] } },
  "defaults": { "userdata": { "content": USERDATA } },
  "templates": {
    "knd": {
      "kind": "knd", "arch": "amd64", "instance_type": "t3.small", "subnet_pool": "workers",
      "args": { "ImageId": "{{ .Image.agent }}" },
    },
    "spt": {
      "kind": "spt", "arch": "amd64", "instance_type": "t3.small", "subnet_pool": "workers",
      "args": { "ImageId": "{{ .Image.agent }}", "InstanceMarketOptions": { "MarketType": "spot" } },
    },
  },
  "groups": { "default": {
    "web": { "template": "knd", "size": 2, "load_balancers": ["web"] },
    "spot": { "template": "spt", "size": 0 },
  } },
}`)
}

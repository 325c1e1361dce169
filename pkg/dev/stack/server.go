package stack

import (
	"net"
	"path/filepath"
	"strconv"
)

// shards lists the shards of the stack with the first of their five ports.
func shards() []shard {
	return []shard{{"dev-1", "dev-1", 8990}, {"dev-2", "dev-2", 9000}}
}

type shard struct {
	component string
	id        string
	port      int // health; election, registration, operator, agent follow
}

func (s shard) addr(offset int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port+offset))
}

func serverSpec(cfg Config, s shard) Spec {
	bind := func(offset int) string { return net.JoinHostPort("0.0.0.0", strconv.Itoa(s.port+offset)) }
	args := []string{
		"--shard", s.id, "--id", s.component,
		"--storage-provider", "s3", "--storage-bucket", bucket,
		"--cache-dir", filepath.Join(cfg.Temp, "cache", s.component),
		"--advertise-host", cfg.Host,
		"--health-addr", bind(0), "--election-addr", bind(1), "--registration-addr", bind(2),
		"--operator-addr", bind(3), "--agent-addr", bind(4),
	}
	if cfg.Standby && s.id == standbyOf {
		// No address moves with the leader here, so agents are told both servers'.
		args = append(args, "--instance-registration-addrs", ":8992,:9012", "--instance-agent-addrs", ":8994,:9014")
	}
	if cfg.Life > 0 {
		args = append(args, "--client-certificate-life", cfg.Life.String())
	}
	return Spec{
		Name:   s.component,
		Path:   filepath.Join(cfg.Bin, "nstance-server"),
		Args:   args,
		Env:    Environment(),
		Health: "http://" + s.addr(0) + "/health",
	}
}

package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
)

// What the stack's pieces agree on. The key protects nothing but examples.
const (
	storeAddr     = "127.0.0.1:8989"
	bucket        = "dev"
	clusterID     = "example-cluster"
	encryptionKey = "thisisatest32bytekey123456789012"
	standbyOf     = "dev-1" // the shard that a standby is added to
)

// Environment is what every program of the stack, and a person's shell, needs
// to reach the stack's object storage and secrets.
func Environment() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=dev",
		"AWS_SECRET_ACCESS_KEY=dev",
		"AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL=http://" + storeAddr,
		"AWS_S3_USE_PATH_STYLE=true",
		"NSTANCE_ENCRYPTION_KEY=" + encryptionKey,
	}
}

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

// specs lists the components in order of start; object storage is the first.
func specs(cfg Config) []Spec {
	all := []Spec{{
		Name:   "s3",
		Path:   filepath.Join(cfg.Bin, "dev-s3"),
		Args:   []string{"--addr", storeAddr, "--root", filepath.Join(cfg.Temp, "dev-s3"), "--bucket", bucket},
		Health: "http://" + storeAddr + "/-/requests",
	}}
	servers := shards()
	if cfg.Standby {
		servers = append(servers, shard{"standby", standbyOf, 9010})
	}
	for _, s := range servers {
		all = append(all, serverSpec(cfg, s))
	}
	return all
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

// checkPorts says which port is taken before anything is started: a component
// that can't bind would only be restarted in vain.
func checkPorts(ctx context.Context, components []*component) error {
	addrs := []string{storeAddr}
	for _, c := range components[1:] {
		for i := 0; i+1 < len(c.spec.Args); i++ {
			if f := c.spec.Args[i]; f == "--health-addr" || f == "--election-addr" || f == "--registration-addr" || f == "--operator-addr" || f == "--agent-addr" {
				addrs = append(addrs, c.spec.Args[i+1])
			}
		}
	}
	var taken []error
	for _, addr := range addrs {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		switch {
		case err == nil:
			l.Close()
		case errors.Is(err, syscall.EADDRINUSE):
			taken = append(taken, fmt.Errorf("port of %s is taken by another program: stop that program first", addr))
		default:
			taken = append(taken, fmt.Errorf("try %s: %w", addr, err))
		}
	}
	return errors.Join(taken...)
}

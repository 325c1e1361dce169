package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/server/leader"
)

// Validate checks the file in args, or the shard's config in its bucket, exactly as a server
// would, and prints the result to out. The error lists every problem.
func Validate(ctx context.Context, cfg Config, args []string, out io.Writer) error {
	name, body, err := configToValidate(ctx, cfg, args)
	if err != nil {
		return err
	}
	shard, err := config.Parse(body)
	if err == nil {
		err = cfg.checkShard(shard)
	}
	if err == nil {
		err = shard.Validate(cfg.checks(shard, nil)).Err()
	}
	if err != nil {
		return fmt.Errorf("%s is not valid:\n%w", name, config.LocateError(body, err))
	}
	fmt.Fprintf(out, "%s is valid\n", name)
	return nil
}

func configToValidate(ctx context.Context, cfg Config, args []string) (name string, body []byte, err error) {
	if len(args) > 0 {
		body, err := os.ReadFile(args[0])
		if err != nil {
			return "", nil, fmt.Errorf("read config: %w", err)
		}
		return args[0], body, nil
	}
	if cfg.Shard == "" || cfg.StorageBucket == "" {
		return "", nil, errors.New("--validate: name a FILE, or --shard and --storage-bucket for the config in the bucket")
	}
	store, err := openStore(cfg)
	if err != nil {
		return "", nil, fmt.Errorf("open object storage: %w", err)
	}
	o, err := store.Get(ctx, leader.ConfigKey(cfg.Shard))
	if err != nil {
		return "", nil, fmt.Errorf("read %s: %w", leader.ConfigKey(cfg.Shard), err)
	}
	return leader.ConfigKey(cfg.Shard), o.Body, nil
}

package operator

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/operator/settings"
)

// fileEvery is how often the configuration file is looked at.
const fileEvery = 2 * time.Second

// fileWatch follows the configuration file, also while this operator is not elected.
type fileWatch struct {
	config Config
	leader *leader
	log    *slog.Logger
}

// NeedLeaderElection has the manager start this at once.
func (*fileWatch) NeedLeaderElection() bool { return false }

// Start follows the file until ctx ends.
func (w *fileWatch) Start(ctx context.Context) error {
	settings.Watcher{
		Path: w.config.ConfigFile, Read: w.config.ReadFile, Every: fileEvery,
		Apply: func(f settings.File) {
			w.leader.use(f)
			w.log.LogAttrs(ctx, slog.LevelInfo, "the configuration file has other shards", slog.Any("shards", w.leader.shards.Names()))
		},
		Problem: func(err error) {
			w.log.LogAttrs(ctx, slog.LevelError, "the configuration file is not taken", slog.Any("error", err))
		},
	}.Run(ctx, w.config.File)
	return nil
}

package operator

import (
	"context"
	"log/slog"
	"time"

	"github.com/nstance/nstance/pkg/operator/settings"
)

// fileEvery is the polling interval of the configuration file.
const fileEvery = 2 * time.Second

// fileWatch follows the configuration file, also on a standby.
type fileWatch struct {
	config Config
	leader *leader
	log    *slog.Logger
}

// NeedLeaderElection returns false: the manager starts it at once.
func (*fileWatch) NeedLeaderElection() bool { return false }

// Start follows the file until ctx ends.
func (w *fileWatch) Start(ctx context.Context) error {
	settings.Watcher{
		Path: w.config.ConfigFile, Read: w.config.ReadFile, Every: fileEvery,
		Apply: func(f settings.File) {
			w.leader.use(f)
			w.log.LogAttrs(ctx, slog.LevelInfo, "the configuration file changed: using its shards", slog.Any("shards", w.leader.shards.Names()))
		},
		Problem: func(err error) {
			w.log.LogAttrs(ctx, slog.LevelError, "the configuration file was not applied: still using the previous one", slog.Any("error", err))
		},
	}.Run(ctx, w.config.File)
	return nil
}

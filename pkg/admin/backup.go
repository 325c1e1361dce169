package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nstance/nstance/pkg/admin/backup"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
)

// Backup writes a backup of a cluster's storage. Servers may run meanwhile.
func Backup(ctx context.Context, c StorageConfig, getenv func(string) string, to io.Writer) (backup.Taken, error) {
	store, err := c.openExisting(getenv)
	if err != nil {
		return backup.Taken{}, err
	}
	return backup.Take(ctx, store, to)
}

// Restore puts a backup back into a cluster's storage.
type Restore struct {
	Storage StorageConfig
	Getenv  func(string) string
	backup.Selection
	DryRun bool // change nothing, and don't look whether servers run
	// Approve is called before anything is changed; its error ends the restore.
	Approve func(*backup.Restore) error
	// Waits is called before a wait that shows whether the servers have stopped.
	Waits func(time.Duration)
}

// Run puts objects back, and returns what it changed, part by part. The servers have to be stopped: a running one
// would act by what it knows.
func (r Restore) Run(ctx context.Context, objects backup.Objects) ([]backup.Restored, error) {
	store, err := r.open()
	if err != nil {
		return nil, err
	}
	plan, err := backup.Compare(ctx, store, objects, r.Selection)
	switch {
	case err != nil:
		return nil, err
	case r.DryRun, plan.Nothing():
		return plan.Parts, nil
	}
	if err := r.Approve(plan); err != nil {
		return nil, err
	}
	return plan.Parts, r.apply(ctx, store, objects, plan)
}

// open opens the storage. A folder has to exist: a mistyped one would be made.
func (r Restore) open() (object.Store, error) {
	if r.Storage.Provider == bucket.Dir {
		if _, err := os.Stat(r.Storage.Bucket); err != nil {
			return nil, fmt.Errorf("--storage-bucket: %w: make the folder first if it was lost", err)
		}
	}
	return r.Storage.open(r.Getenv)
}

// ErrNothingChanged ends the text of a restore that failed before its first write.
var ErrNothingChanged = errors.New("nothing was changed")

// apply carries out an approved plan once the servers have stopped.
func (r Restore) apply(ctx context.Context, store object.Store, objects backup.Objects, approved *backup.Restore) error {
	stopped, err := backup.AwaitStopped(ctx, store, objects, r.Selection, r.Waits)
	if err != nil {
		return fmt.Errorf("%w; %w", err, ErrNothingChanged)
	}
	plan, err := backup.Compare(ctx, store, objects, r.Selection)
	if err == nil && !plan.Equal(approved) {
		err = errors.New("the storage has changed since it was compared: repeat the command")
	}
	if err == nil {
		err = stopped.Still(ctx, store)
	}
	if err != nil {
		return fmt.Errorf("%w; %w", err, ErrNothingChanged)
	}
	err = plan.Apply(ctx, store)
	if ran := stopped.Still(ctx, store); ran != nil {
		err = errors.Join(err, fmt.Errorf("whether a server acted while objects were put back: %w", ran))
	}
	return err
}

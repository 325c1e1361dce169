package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/bucket"
)

// openExisting is open for commands that need the storage of a cluster: a folder that does not exist
// is an error, and is not made.
func (c StorageConfig) openExisting(getenv func(string) string) (object.Store, error) {
	if c.Provider == bucket.Dir && c.Bucket != "" {
		if _, err := os.Stat(c.Bucket); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the storage folder %s does not exist: check --storage-bucket, or start a server, which makes it", c.Bucket)
		}
	}
	return c.open(getenv)
}

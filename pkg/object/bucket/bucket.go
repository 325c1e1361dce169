// Package bucket opens object storage by the name of its kind, for every
// program that is told on its command line where its bucket is.
package bucket

import (
	"fmt"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/dir"
	"github.com/nstance/nstance/pkg/object/s3"
)

// The kinds.
const (
	S3  = "s3"
	Dir = "dir"
)

// CheckKind reports why kind is none; nil when it is one.
func CheckKind(kind string) error {
	if kind != S3 && kind != Dir {
		return fmt.Errorf("%.80q is not valid: want %s or %s", kind, S3, Dir)
	}
	return nil
}

// Open opens the bucket of that name, or for Dir the directory. The endpoint of S3 comes from
// the environment, and so do the credentials, unless there are others: see s3.FromEnv. No
// request is sent.
func Open(kind, name string, getenv func(string) string, others awsclient.CredentialsProvider) (object.Store, error) {
	if err := CheckKind(kind); err != nil {
		return nil, fmt.Errorf("storage-provider: %w", err)
	}
	if kind == Dir {
		return dir.New(dir.Config{Root: name})
	}
	c, err := s3.FromEnv(name, getenv)
	if err != nil {
		return nil, err
	}
	c.Credentials = others
	return s3.New(c)
}

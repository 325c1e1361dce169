// Package bucket opens object storage by the name of its kind, as given by command-line flags.
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

// CheckKind returns an error if the kind is unknown.
func CheckKind(kind string) error {
	if kind != S3 && kind != Dir {
		return fmt.Errorf("%.80q is not valid: want %s or %s", kind, S3, Dir)
	}
	return nil
}

// Open opens the bucket with that name, or for Dir the directory. S3's endpoint comes from the
// environment, and so do the credentials, unless others are given: see s3.FromEnv. It sends no
// request.
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

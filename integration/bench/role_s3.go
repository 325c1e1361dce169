package main

import (
	"context"

	"github.com/nstance/nstance/pkg/dev/s3"
)

type s3Settings struct {
	Addr string `json:"addr"`
	Root string `json:"root"`
}

// The keys of the bucket.
const storeKey, storeSecret = "bench", "bench-secret"

// playS3 serves a folder as the bucket, as dev-s3 does.
func playS3(ctx context.Context, s *stage) error {
	var settings s3Settings
	if err := s.read(&settings); err != nil {
		return err
	}
	return s3.Run(ctx, settings.Addr, s3.Config{
		Root: settings.Root, Bucket: bucket, Keys: s3.Key(storeKey, storeSecret, ""),
	})
}

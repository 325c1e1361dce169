package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mostAWS is what AWS may add to a server, in MB: five modules of the SDK, from which the linker
// drops unused methods as long as no struct keeps a client.
const mostAWS = 6

// weightOfAWS builds the server as it is, and once more without the provider and the secrets of
// AWS.
func (b *bench) weightOfAWS(ctx context.Context) (figure, error) {
	var sizes [2]int64
	overlay, err := b.withoutAWS()
	if err != nil {
		return figure{}, err
	}
	for at, flags := range [][]string{nil, {"-overlay", overlay}} {
		path := filepath.Join(b.temp, fmt.Sprint("weight-", at))
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path}, flags...)
		cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/"+serverBinary)...)
		if said, err := cmd.CombinedOutput(); err != nil {
			return figure{}, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, said)
		}
		built, err := os.Stat(path)
		if err != nil {
			return figure{}, err
		}
		sizes[at] = built.Size()
	}
	return newFigure("server_aws", float64(sizes[0]-sizes[1])/1e6, "MB", 1).atMost(mostAWS).
		noted("what AWS adds to the server's %.1f MB, not compressed", float64(sizes[0])/1e6), nil
}

// withoutAWS writes the overlay file with which go builds a server without AWS, and returns its
// path.
func (b *bench) withoutAWS() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for folder, by := range map[string]string{"pkg/provider/aws": "provider.go", "pkg/secrets/aws": "secrets.go"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			replaced[file] = "" // as if it did not exist
		}
		replaced[filepath.Join(root, folder, "aws.go")] = filepath.Join(root, "integration/bench/testdata/without-aws", by)
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.temp, "without-aws.json")
	return path, os.WriteFile(path, text, 0o600)
}

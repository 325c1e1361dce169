// Command images builds, signs and verifies what people install: container images, with
// no container engine, and where none is named with no registry but its own, archives
// for plain machines, and the chart.
//
//	go run ./images build    what .ko.yaml says, for every architecture
//	go run ./images sign     each image, and an SBOM for each architecture
//	go run ./images verify   what was signed, as a user would
//	go run ./images serve    the registry that build pushed to, for others
//	go run ./images dist     archives for plain machines, signed
//	go run ./images chart    the chart, and what clusterctl reads, with the operator's image
//	                         by its digest
//	go run ./images base     whether the base image is the newest of its name
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	static "github.com/nstance/nstance/images/base"
	"github.com/nstance/nstance/images/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// settings are the flags that all commands share.
type settings struct {
	work, address, tag string
}

func (s settings) builder() release.Builder {
	return release.Builder{Source: ".", Work: s.work, Tag: s.tag, Output: os.Stderr}
}

func command() *cobra.Command {
	var s settings
	root := &cobra.Command{
		Use: "images", Short: "Build, sign and verify images, archives and the chart", SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&s.work, "work", "temp/images", "folder for what is kept between the steps: registry, keys, SBOMs")
	root.PersistentFlags().StringVar(&s.address, "address", "127.0.0.1:5017",
		"loopback address of our own registry; the base image's name is part of every digest, so another address gives other digests")
	root.PersistentFlags().StringVar(&s.tag, "tag", "",
		"the release that is built, v1.2.3: it has to be a tag of this commit; empty: git says what this is")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return s.builder().CheckGo() }
	root.AddCommand(build(&s), sign(&s), verify(&s), serve(&s), dist(&s), chart(&s), base(&s))
	return root
}

// pushBase makes the base image and returns its reference by digest.
func pushBase(ctx context.Context, repository string) (string, error) {
	index, err := static.Index(release.Architectures())
	if err != nil {
		return "", fmt.Errorf("make the base image: %w", err)
	}
	return release.PushIndex(ctx, index, repository, "local")
}

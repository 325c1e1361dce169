package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/images/release"
)

func build(s *settings) *cobra.Command {
	var target release.Target
	c := &cobra.Command{Use: "build", Short: "Build the images and push them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			target.Base = os.Getenv("KO_DEFAULTBASEIMAGE") // by the same variable as ko's own
			own := target.Repository == ""
			if own {
				target.Repository = s.address + "/nstance"
			}
			if err := target.Validate(); err != nil {
				return err
			}
			return s.whileServing(c.Context(), own, func() error { return s.build(c.Context(), target, own) })
		}}
	c.Flags().StringVar(&target.Repository, "repository", "", "where to push to; empty: our own registry")
	c.Flags().StringSliceVar(&target.Programs, "programs", release.Programs(), "which images to build")
	c.Flags().StringVar(&target.Cache, "cache", "",
		"absolute path of Go's build cache for the programs: an empty folder trusts nothing built before")
	return c
}

// build builds a target. What goes to our own registry is built on a base from there, as
// others may be out of reach.
func (s *settings) build(ctx context.Context, target release.Target, own bool) error {
	if own && target.Base == "" {
		var err error
		if target.Base, err = pushBase(ctx, s.address+"/base/static"); err != nil {
			return err
		}
	}
	built, err := s.builder().Build(ctx, target)
	if err != nil {
		return err
	}
	tell(built)
	return nil
}

// tell prints what was built, an image to a line: its reference, and what pulling it
// costs on each architecture.
func tell(built release.Release) {
	for _, image := range built.Images {
		fmt.Print(image.Reference)
		for _, platform := range image.Platforms {
			fmt.Printf("  %s %.1f MB", platform.Architecture, float64(platform.Size)/1e6)
		}
		fmt.Println()
	}
}

// signing are the flags of whatever signs.
type signing struct{ release.Signer }

func (s *signing) add(c *cobra.Command) {
	c.Flags().StringVar(&s.Key, "key", "",
		"a file or a reference to a key of a KMS, as cosign takes it; empty: a key for trying things out, made here")
	c.Flags().BoolVar(&s.Keyless, "keyless", false, "sign with the identity that the environment proves, which a public log then tells")
	c.MarkFlagsMutuallyExclusive("key", "keyless")
}

// trusting are the flags of whatever verifies.
type trusting struct{ release.Trust }

func (t *trusting) add(c *cobra.Command) {
	c.Flags().StringVar(&t.Key, "public-key", "", "the public key, or a reference to it, as cosign takes it; empty: the one made here")
	c.Flags().StringVar(&t.Identity, "identity", "", "without a key: a pattern of the identity that signed")
	c.Flags().StringVar(&t.Issuer, "issuer", "https://token.actions.githubusercontent.com", "and who vouches for it")
	c.MarkFlagsMutuallyExclusive("public-key", "identity")
}

// complete fills in the keys for trying things out, where nothing else is named. What
// others will pull is not signed with them, for they are known to every user of this
// machine.
func (s *settings) complete(ctx context.Context, published bool, sign *release.Signer, trust *release.Trust) error {
	trial := (sign == nil || *sign == release.Signer{}) && (trust == nil || trust.Key == "" && trust.Identity == "")
	if trial && !published {
		private, public, err := s.builder().Keys(ctx, s.keys())
		if err != nil {
			return err
		}
		if sign != nil {
			sign.Key = private
		}
		if trust != nil {
			trust.Key = public
		}
		return nil
	}
	var errs []error
	if sign != nil && sign.Validate() != nil {
		errs = append(errs, fmt.Errorf("%w: set --key (KEY=) or --keyless (KEYLESS=1)", sign.Validate()))
	}
	if trust != nil && trust.Validate() != nil {
		errs = append(errs, fmt.Errorf("%w: set --public-key (PUBLIC_KEY=) or --identity (IDENTITY=)", trust.Validate()))
	}
	return errors.Join(errs...)
}

func sign(s *settings) *cobra.Command {
	var with signing
	c := &cobra.Command{Use: "sign", Short: "Sign the images, and attest their SBOMs", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			built, err := release.Load(s.work)
			if err != nil {
				return err
			}
			if err := s.complete(c.Context(), !built.Local(), &with.Signer, nil); err != nil {
				return err
			}
			return s.whileServing(c.Context(), s.holds(built), func() error { return s.builder().Sign(c.Context(), built, with.Signer) })
		}}
	with.add(c)
	return c
}

func verify(s *settings) *cobra.Command {
	var whom trusting
	c := &cobra.Command{Use: "verify", Short: "Verify signatures and SBOMs of the images", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			built, err := release.Load(s.work)
			if err != nil {
				return err
			}
			if err := s.complete(c.Context(), !built.Local(), nil, &whom.Trust); err != nil {
				return err
			}
			err = s.whileServing(c.Context(), s.holds(built), func() error { return s.builder().Verify(c.Context(), built, whom.Trust) })
			if err != nil {
				return err
			}
			for _, image := range built.Images {
				fmt.Println("verified", image.Reference)
			}
			return nil
		}}
	whom.add(c)
	return c
}

func serve(s *settings) *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "Serve what build pushed, until interrupted", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.serving(c.Context(), func() error {
				fmt.Println("registry on", s.address)
				<-c.Context().Done()
				return nil
			})
		}}
}

func dist(s *settings) *cobra.Command {
	var folder string
	var programs, files []string
	var with signing
	var whom trusting
	c := &cobra.Command{Use: "dist", Short: "Make archives for plain machines, sign and verify them", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.complete(c.Context(), s.tag != "", &with.Signer, &whom.Trust); err != nil {
				return err
			}
			names, err := s.builder().Dist(c.Context(), folder, release.Archives(programs), files...)
			if err != nil {
				return err
			}
			if err := s.builder().SignDist(c.Context(), folder, with.Signer); err != nil {
				return err
			}
			if err := s.builder().VerifyDist(c.Context(), folder, whom.Trust); err != nil {
				return err
			}
			for _, name := range names {
				fmt.Println(filepath.Join(folder, name))
			}
			return nil
		}}
	c.Flags().StringVar(&folder, "folder", "temp/dist", "where they are made; what is there is removed")
	c.Flags().StringSliceVar(&programs, "programs", release.Programs(), "which programs they hold")
	c.Flags().StringSliceVar(&files, "with", nil, "files that are signed with them")
	with.add(c)
	whom.add(c)
	return c
}

func base(*settings) *cobra.Command {
	return &cobra.Command{Use: "base", Short: "Check that the base image of .ko.yaml is the newest of its name", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			reference, err := release.CheckBase(c.Context(), ".ko.yaml")
			if err != nil {
				return err
			}
			fmt.Println("the base image is", reference)
			return nil
		}}
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstance/nstance/images/release"
)

func chart(s *settings) *cobra.Command {
	var folder, repository string
	var with signing
	var whom trusting
	c := &cobra.Command{Use: "chart", Short: "Package the chart, with the operator's image by its digest, and push it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			built, err := release.Load(s.work)
			if err != nil {
				return err
			}
			own := strings.HasPrefix(repository, s.address+"/")
			if repository != "" {
				if err := s.complete(c.Context(), !own, &with.Signer, &whom.Trust); err != nil {
					return err
				}
			}
			paths, err := s.builder().Chart(c.Context(), built, folder)
			if err != nil {
				return err
			}
			fmt.Println(strings.Join(paths, "\n"))
			if repository == "" {
				return nil
			}
			return s.whileServing(c.Context(), own, func() error {
				reference, err := s.builder().PushChart(c.Context(), built, paths[0], repository, with.Signer, whom.Trust)
				if err == nil {
					fmt.Println(reference)
				}
				return err
			})
		}}
	c.Flags().StringVar(&folder, "folder", "temp/chart", "where the package is made; what is there is removed")
	c.Flags().StringVar(&repository, "repository", "", "push it to repository/nstance-operator, and sign it there; empty: do neither")
	with.add(c)
	whom.add(c)
	return c
}

package cli

import (
	"github.com/spf13/cobra"

	"github.com/nstance/nstance/pkg/admin"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// noPods is the policy argument that removes the policy.
const noPods = "none"

func groupOnDemand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "on-demand GROUP POLICY", Short: "Set the pod policy of a dynamic group", Args: cobra.ExactArgs(2),
		Long: "Set which Kubernetes pods may get instances of a dynamic group: a JSON object with the config's on_demand fields, such as\n" +
			`{"namespaces": ["ci"], "max": 10}, or none, after which pods get no more instances. Existing instances stay.`,
	}
	ifETag, force := etagFlag(cmd), forceFlag(cmd)
	return a.leaf(cmd, func(cmd *cobra.Command, args []string) error {
		policy := &nstancev1.OnDemand{}
		if args[1] != noPods {
			var err error
			if policy, err = parseOnDemand("policy", args[1]); err != nil {
				return err
			}
		}
		return a.upsert(cmd, &nstancev1.UpsertGroupRequest{Key: args[0], OnDemand: policy, IfEtag: ifETag(), Force: *force}, false, false)
	})
}

// parseOnDemand parses a policy given on the command line.
func parseOnDemand(where, text string) (*nstancev1.OnDemand, error) {
	policy, err := admin.ParseOnDemand(text)
	if err != nil {
		return nil, usagef("%s: %w", where, err)
	}
	return policy, nil
}

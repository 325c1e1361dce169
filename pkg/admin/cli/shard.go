package cli

import (
	"strconv"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/spf13/cobra"
)

// shardCommand has the commands about shards as a whole.
func shardCommand(a *app) *cobra.Command {
	return a.shardFlags(branch(&cobra.Command{Use: "shard", Short: "Shards: list"}, shardList(a)))
}

func shardList(a *app) *cobra.Command {
	cmd := listing(&cobra.Command{
		Use: "list", Short: "List the shards, with the server that leads each", Args: cobra.NoArgs,
		Long: "List the shards, with the server that leads each, for how long it has, when it renewed its lease last, and how many " +
			"other servers stand by.",
	}, "SHARD")
	return listEach(a, cmd, func() []column[admin.ShardStatus] { return shardColumns(a) }, (*admin.Client).ShardStatus, nil)
}

func shardColumns(a *app) []column[admin.ShardStatus] {
	now := a.env.Now()
	return []column[admin.ShardStatus]{
		{"SHARD", func(s admin.ShardStatus) string { return s.Shard }},
		{"LEADER", func(s admin.ShardStatus) string { return s.GetLeader() }},
		{"EPOCH", func(s admin.ShardStatus) string { return strconv.FormatUint(s.GetEpoch(), 10) }},
		{"LEADING", func(s admin.ShardStatus) string { return age(s.GetLeadingSince(), now) }},
		{"RENEWED", func(s admin.ShardStatus) string { return age(s.GetLeaseRenewedAt(), now) }},
		{"STANDBYS", func(s admin.ShardStatus) string { return strconv.Itoa(int(s.GetStandbys())) }},
		{"VERSION", func(s admin.ShardStatus) string { return s.GetVersion() }},
	}
}

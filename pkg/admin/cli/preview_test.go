package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// PreviewConfig answers with somePreview, unless a test has another answer.
func (s *shard) PreviewConfig(_ context.Context, req *nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
	if s.preview != nil {
		return s.preview(req)
	}
	return &nstancev1.PreviewConfigResponse{Etag: "e2", Preview: somePreview()}, nil
}

// somePreview has something in each field.
func somePreview() *nstancev1.ConfigPreview {
	return &nstancev1.ConfigPreview{
		Groups: []*nstancev1.GroupPreview{
			{Tenant: "default", Group: "jobs", Change: nstancev1.GroupChange_GROUP_CHANGE_REMOVED, SizeBefore: 1, Instances: 1},
			{
				Tenant: "default", Group: "web", Change: nstancev1.GroupChange_GROUP_CHANGE_CHANGED, SizeBefore: 2, Size: 3, Instances: 2,
				Replaced: 2, AtATime: 1, PushedFiles: []string{"a.conf"}, DroppedFiles: []string{"b.conf"}, Fields: []string{"args", "size"},
				Disabled: "no such template",
			},
		},
		Removals:        []*nstancev1.GroupRemoval{{Tenant: "default", Group: "jobs", Instances: 1, InstanceIds: []string{someInstance}}},
		RestartRequired: []string{"server.bind"}, ShardSurge: 4,
		SizeOverrides:  []*nstancev1.SizeOverride{{Tenant: "default", Group: "web", StaticSize: 5, Size: 3}},
		DeletedRecords: &nstancev1.DeletedRecords{Kept: 2993, WindowSeconds: 8*3600 + 29, Expected: 90_000, ExpectedBytes: 223 << 20},
	}
}

// manyDeleted is what is told of somePreview's deleted records.
const manyDeleted = "dev-1: at the rate of the last 8h, deleted_record_retention keeps about 90000 records of deleted instances " +
	"(now 2993): 223 MiB of the server's memory"

// isPreview checks the words of somePreview.
func isPreview(t *testing.T, r result) {
	t.Helper()
	var have []string
	for line := range strings.Lines(r.out) {
		have = append(have, strings.Join(strings.Fields(line), " "))
	}
	text := strings.Join(have, "\n")
	if !strings.Contains(r.errOut, manyDeleted) {
		t.Errorf("standard error %s, want %q in it", r.errOut, manyDeleted)
	}
	for _, want := range []string{
		"dev-1 default/jobs goes 1 -> 0 1 0 - -", "dev-1 default/web changes 2 -> 3 2 2, 1 at a time a.conf args, size",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("output %s, want %q in it", r.out, want)
		}
	}
}

// configFile writes a valid config, with texts in pairs replaced.
func configFile(t *testing.T, pairs ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.jsonc")
	text := strings.NewReplacer(pairs...).Replace(read(t, "../../../examples/config.jsonc"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestConfigDiff: the preview of the bucket's config and of a file, as a table and as JSON.
func TestConfigDiff(t *testing.T) {
	c := newFixture(t).register()
	s := c.shard("dev-1")
	var texts [][]byte
	s.preview = func(req *nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		texts = append(texts, req.Text)
		return &nstancev1.PreviewConfigResponse{Etag: "e2", Preview: somePreview()}, nil
	}
	file := configFile(t)
	for _, args := range [][]string{{"config", "diff"}, {"config", "diff", file}, {"config", "refresh", "--dry-run"}} {
		isPreview(t, c.run(args...).want(t, cli.ExitOK,
			"dev-1: group default/jobs has to be confirmed: it loses 1 instances (config refresh --accept-removal default/jobs)",
			"dev-1: takes effect after a restart of the server: server.bind", "dev-1: group default/web is disabled: no such template",
			"dev-1: group default/web: size 3 overrides the config's 5"))
	}
	if len(texts) != 3 || texts[0] != nil || string(texts[1]) != read(t, file) || texts[2] != nil {
		t.Errorf("asked with %d texts: %q", len(texts), texts)
	}
	all := decode[[]row[*nstancev1.PreviewConfigResponse]](t, c.run("config", "diff", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 1 || all[0].Shard != "dev-1" || !proto.Equal(all[0].Message.GetPreview(), somePreview()) {
		t.Errorf("output %+v", all)
	}
	for _, flag := range []string{"--yes", "--wait"} {
		c.run("config", "refresh", "--dry-run", flag).want(t, cli.ExitUsage, "--dry-run changes nothing")
	}
	s.preview = func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		paused := somePreview()
		paused.Groups[1].AtATime = 0
		return &nstancev1.PreviewConfigResponse{Preview: paused}, nil
	}
	if r := c.run("config", "diff").want(t, cli.ExitOK); !strings.Contains(r.out, "2, after resume ") {
		t.Errorf("output %q", r.out)
	}
	s.preview = func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		return &nstancev1.PreviewConfigResponse{Preview: &nstancev1.ConfigPreview{}}, nil
	}
	if r := c.run("config", "diff").want(t, cli.ExitOK); r.out != "no group changes\n" {
		t.Errorf("output %q", r.out)
	}
	s.preview = func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		return nil, &rpc.ViolationsError{Message: "invalid", Violations: []rpc.Violation{{Field: "groups.a.b", Description: "is wrong"}}}
	}
	c.run("config", "diff").want(t, cli.ExitFailed, "shard dev-1", "groups.a.b: is wrong")
	c.run("config", "diff", file).want(t, cli.ExitFailed, "config.jsonc is not valid:", "line ", "groups.a.b: is wrong")
	c.run("config", "diff", configFile(t, `"cluster"`, `"clster"`)).want(t, cli.ExitFailed, "is not valid", "line ", "clster: unknown field")
	c.shard("dev-2")
	c.run("config", "diff", file).want(t, cli.ExitUsage, "--shard NAME")
}

// TestRefreshPrintsWhatItDid, in the table and in JSON.
func TestRefreshPrintsWhatItDid(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").refresh = func() (*nstancev1.RefreshConfigResponse, error) {
		outcome := nstancev1.RefreshOutcome_REFRESH_OUTCOME_UPDATED
		return &nstancev1.RefreshConfigResponse{Outcome: outcome, Etag: "e2", Preview: somePreview()}, nil
	}
	isPreview(t, c.run("config", "refresh").want(t, cli.ExitOK))
	all := decode[[]admin.Refresh](t, c.run("config", "refresh", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 1 || all[0].Preview == nil || !proto.Equal(all[0].Preview.ConfigPreview, somePreview()) {
		t.Errorf("output %+v", all)
	}
}

// TestValidateAsksTheShard, if there is one that answers, and says so if there is none.
func TestValidateAsksTheShard(t *testing.T) {
	const only = "only the text was checked, without the provider's rules"
	file := configFile(t)
	c := newFixture(t)
	validate := func(args ...string) result {
		return c.run(append([]string{"config", "validate", file, "-o", "json"}, args...)...)
	}
	checkedBy := func(r result) any { return decode[map[string]any](t, r.want(t, cli.ExitOK).out)["checked_by"] }
	if by := checkedBy(validate().want(t, cli.ExitOK, only, "--servers is not set")); by != "text" {
		t.Errorf("checked by %v", by)
	}
	s := c.shard("dev-1")
	validate().want(t, cli.ExitOK, only, "no identity")
	c.register()
	if r := validate(); checkedBy(r) != "shard dev-1" || !r.quiet() {
		t.Errorf("%+v", r)
	}
	s.preview = func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		return nil, &rpc.ViolationsError{Message: "invalid", Violations: []rpc.Violation{
			{Field: "server.provider", Description: "not of this build"}, {Field: "cluster.id", Description: "of another cluster"}}}
	}
	validate().want(t, cli.ExitFailed, "config.jsonc is not valid:", "2 problems", "server.provider: not of this build",
		"column 5: cluster.id: of another cluster")
	if r := validate("--offline"); checkedBy(r) != "text" || !r.quiet() {
		t.Errorf("%+v", r)
	}
	s.preview = func(*nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
		return nil, rpc.Denied.Errorf("not for you")
	}
	validate().want(t, cli.ExitOK, only, "not for you")
	s.fail(rpc.Unavailable.Errorf("not now"))
	validate("--timeout", "500ms").want(t, cli.ExitOK, only, "dev-1")
	c.shard("dev-2")
	validate().want(t, cli.ExitOK, only, "there are 2 shards: add --shard NAME")
	validate("--shard", "dev-3").want(t, cli.ExitUsage, "dev-3")
}

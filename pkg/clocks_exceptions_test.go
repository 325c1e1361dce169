package pkg_test

// Why real time decides.
const (
	expires = "the context is meant to run out, and is waited for"
	oneTry  = "one try of several: the next one follows, and what bounds them all is a minute or more"
)

// realTimes are the functions of tests that real time decides about, by file and name, and
// why they have to.
func realTimes() map[string]string {
	return map[string]string{
		"integration/containers/server.go Health":                          oneTry,
		"integration/containers/engine.go withoutReaper":                   "without the image in that time the tests do without the reaper",
		"integration/failover/failover_test.go answers":                    oneTry,
		"integration/failover/world_test.go running":                       oneTry,
		"integration/storage/faults_test.go TestPaused":                    expires,
		"integration/storage/faults_test.go answers":                       oneTry,
		"pkg/object/objecttest/settle.go testSettleDown":                   expires,
		"pkg/object/s3/wire_test.go TestDeadline":                          expires,
		"pkg/object/s3/wire_test.go FuzzListing":                           expires + ", by a listing that never ends",
		"pkg/operator/planetest/process.go ready":                          oneTry,
		"pkg/operator/probe_test.go TestProbe":                             expires,
		"pkg/provider/docker/registry/helper_test.go TestHelperThatHangs":  expires,
		"pkg/provider/process/life_test.go TestSpawnUnderWay":              expires,
		"pkg/rpc/client_test.go TestDoGivesUpWithTheContextAndSaysWhy":     expires,
		"pkg/server/election/peer_test.go TestDialerTellsDeathFromSilence": expires,
	}
}

package pkg_test

// The reasons why a real time is asserted.
const (
	expires = "the context is meant to run out, and is waited for"
	oneTry  = "one try of several: the next one follows, and what bounds them all is a minute or more"
)

// realTimes are the test functions that assert a real time, by file and name, with the reason.
func realTimes() map[string]string {
	return map[string]string{
		"integration/containers/server.go Health":                                 oneTry,
		"integration/containers/engine.go withoutReaper":                          "without the image in time, the tests do without the reaper",
		"integration/failover/failover_test.go answers":                           oneTry,
		"integration/failover/fixture_test.go running":                            oneTry,
		"integration/storage/faults_test.go TestPaused":                           expires,
		"integration/storage/faults_test.go answers":                              oneTry,
		"pkg/object/s3/wire_test.go TestDeadline":                                 expires,
		"pkg/object/s3/wire_test.go FuzzListing":                                  expires + ", by a listing that never ends",
		"pkg/operator/planetest/process.go ready":                                 oneTry,
		"pkg/provider/docker/registry/helper_test.go TestHangingCredentialHelper": expires,
		"pkg/provider/process/life_test.go TestSpawnUnderWay":                     expires,
		"pkg/server/election/peer_test.go TestDialerTellsDeathFromSilence":        expires,
	}
}

package shardtest

// command is a line that a script can hold, and what it does.
type command struct {
	pattern string
	do      func(*Shard, args) error
}

// commands is the whole language. What a step asks for that can't be (to start a
// server that runs) is told in the timeline, and the story goes on.
func commands() []command {
	return []command{
		{"wait SPAN", (*Shard).doWait},
		{"settle SPAN", (*Shard).doSettle},
		{"heal", (*Shard).doHeal},

		{"start SERVER", (*Shard).doStart},
		{"stop SERVER", (*Shard).doStop},
		{"crash SERVER", (*Shard).doCrash},
		{"crash SERVER before COUNT", (*Shard).doCrashBefore},
		{"crash SERVER after COUNT", (*Shard).doCrashAfter},
		{"suspend SERVER", (*Shard).doSuspend},
		{"suspend SERVER before COUNT", (*Shard).doSuspendBefore},
		{"resume SERVER", (*Shard).doResume},

		{"cut HOST HOST", (*Shard).doCut},
		{"join HOST HOST", (*Shard).doJoin},

		{"store fair", (*Shard).doStoreFair},
		{"store down", (*Shard).doStoreDown},
		{"store slow SPAN", (*Shard).doStoreSlow},
		{"store lossy COUNT", (*Shard).doStoreLossy},

		{"provider fair", (*Shard).doProviderFair},
		{"provider down", (*Shard).doProviderDown},
		{"provider throttles", (*Shard).doProviderThrottles},
		{"provider refuses COUNT CALL", (*Shard).doProviderRefuses},
		{"provider misses COUNT CALL", (*Shard).doProviderMisses},
		{"provider loses COUNT CALL", (*Shard).doProviderLoses},
		{"provider hangs COUNT CALL", (*Shard).doProviderHangs},
		{"provider delays COUNT CALL SPAN", (*Shard).doProviderDelays},

		{"lists SERVER fail", (*Shard).doListsFail},
		{"lists SERVER crawl SPAN", (*Shard).doListsCrawl},
		{"lists SERVER fair", (*Shard).doListsFair},
		{"puts SERVER take SPAN", (*Shard).doPutsTake},

		{"vm dies INSTANCE", (*Shard).doVMDies},
		{"vm stops INSTANCE", (*Shard).doVMStops},
		{"vm vanishes INSTANCE", (*Shard).doVMVanishes},
		{"notice INSTANCE SPAN", (*Shard).doNotice},
		{"agent dies INSTANCE SPAN", (*Shard).doAgentDies},
		{"agent restarts INSTANCE SPAN", (*Shard).doAgentRestarts},

		{"config GROUP COUNT", (*Shard).doConfigSize},
		{"config type TYPE", (*Shard).doConfigType},
		{"config var COUNT", (*Shard).doConfigVar},
		{"config drain SPAN", (*Shard).doConfigDrain},
		{"config broken", (*Shard).doConfigBroken},
		{"config mended", (*Shard).doConfigMended},
		{"refresh", (*Shard).doRefresh},

		{"scale GROUP COUNT", (*Shard).doScale},
		{"scale GROUP COUNT remove INSTANCE", (*Shard).doScaleRemove},
		{"group GROUP COUNT", (*Shard).doGroup},
		{"ungroup GROUP", (*Shard).doUngroup},
		{"create GROUP KEY", (*Shard).doCreate},
		{"delete INSTANCE", (*Shard).doDelete},
		{"delete key KEY", (*Shard).doDeleteKey},
		{"ack", (*Shard).doAck},
	}
}

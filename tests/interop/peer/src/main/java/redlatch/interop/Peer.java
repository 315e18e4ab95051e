package redlatch.interop;

import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * The Java program beside a test: does what stdin says, one command a line, on threads that the command names.
 *
 * <pre>
 * arguments   redisson | jedis | sharded | plain (Redisson in a cluster), host:port[,...],
 *             the watchdog's time-out in ms, key prefix
 * command     number TAB thread TAB [fenced. | fair. | read. | write. | semaphore. | leased. | latch.]verb [TAB argument ...]
 * answer      number TAB ns at the begin TAB ns at the end TAB ok | failed TAB value | exception
 * </pre>
 *
 * Commands of one thread run in order, those of several side by side. The end of stdin ends the program.
 */
public final class Peer {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** To Redisson readers that are always there are no reason to let a writer in. */
    private static final int BETWEEN_LOOKS_MILLIS = 10;

    private final Locks locks;
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Peer(Locks locks) {
        this.locks = locks;
    }

    public static void main(String[] arguments) throws IOException {
        long watchdog = Long.parseLong(arguments[2]);
        try (Locks locks = switch (arguments[0]) {
            case "redisson" -> RedissonLocks.ofServer(arguments[1], watchdog, arguments[3]);
            case "sharded" -> RedissonLocks.ofCluster(ShardedSubscriptionMode.AUTO, arguments[1], watchdog, arguments[3]);
            case "plain" -> RedissonLocks.ofCluster(ShardedSubscriptionMode.OFF, arguments[1], watchdog, arguments[3]);
            case "jedis" -> new JedisLocks(arguments[1], watchdog, arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }) {
            new Peer(locks).serve();
        }
        // Not all of the libraries' threads are daemons.
        System.exit(0);
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor(task -> new Thread(task, name)))
                    .execute(() -> answer(words));
        }
    }

    private void answer(String[] words) {
        String outcome;
        long begin = System.nanoTime();
        try {
            outcome = "ok\t" + run(words[2].split("\\."), words);
        } catch (Exception exception) {
            outcome = "failed\t" + exception.toString().replaceAll("\\s+", " ");
        }
        long end = System.nanoTime();
        OUT.println(words[0] + "\t" + begin + "\t" + end + "\t" + outcome);
    }

    private Object run(String[] verb, String[] words) throws Exception {
        if (verb.length == 1) {
            return run(locks, verb[0], words);
        }
        return switch (verb[0]) {
            case "semaphore", "leased", "latch" -> locks.counters().run(verb[0], verb[1], words);
            default -> run(locks.ofKind(verb[0]), verb[1], words);
        };
    }

    private static Object run(Locks locks, String verb, String[] words) throws Exception {
        String name = words.length > 3 ? words[3] : null;
        switch (verb) {
            case "lock" -> locks.lock(name);
            case "lockFor" -> locks.lock(name, Long.parseLong(words[4]));
            case "unlock" -> locks.unlock(name);
            case "tryLock" -> {
                return locks.tryLock(name, Long.parseLong(words[4]));
            }
            case "forceUnlock" -> {
                return locks.forceUnlock(name);
            }
            case "isLocked" -> {
                return locks.isLocked(name);
            }
            case "lockAndGetToken" -> {
                return locks.lockAndGetToken(name);
            }
            case "count" -> {
                return count(locks, name, Path.of(words[4]), Integer.parseInt(words[5]));
            }
            case "watch" -> {
                return watch(locks, name, Path.of(words[4]), Integer.parseInt(words[5]));
            }
            case "ready" -> {
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }

    /**
     * Adds one to the number in a file under the lock, until it is the target; says how often it did, and how long it waited at
     * most, ms, but for the first time, when nobody is let in yet. Tokens go to a file beside that one.
     */
    private static String count(Locks locks, String name, Path file, int target) throws Exception {
        long longest = 0;
        for (int mine = 0;; mine++) {
            long begin = System.nanoTime();
            long token = 0;
            if (locks.haveTokens()) {
                token = locks.lockAndGetToken(name);
            } else {
                locks.lock(name);
            }
            try {
                longest = mine == 0 ? 0 : Math.max(longest, System.nanoTime() - begin);
                int number = Integer.parseInt(Files.readString(file));
                if (number >= target) {
                    return mine + " " + longest / 1_000_000;
                }
                Files.writeString(file, String.valueOf(number + 1));
                if (token > 0) {
                    Files.writeString(file.resolveSibling("tokens"), token + "\n", CREATE, APPEND);
                }
            } finally {
                locks.unlock(name);
            }
        }
    }

    /** Looks at the number under the lock, twice each time, until it is the target: how often it looked. */
    private static int watch(Locks locks, String name, Path file, int target) throws Exception {
        for (int looks = 1;; looks++) {
            locks.lock(name);
            try {
                int number = Integer.parseInt(Files.readString(file));
                Thread.yield();
                if (Integer.parseInt(Files.readString(file)) != number) {
                    throw new IllegalStateException("a writer beside a reader at " + number);
                }
                if (number >= target) {
                    return looks;
                }
            } finally {
                locks.unlock(name);
            }
            Thread.sleep(BETWEEN_LOOKS_MILLIS);
        }
    }
}
